terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }
}

# Only the management cluster has to be named: the credentials of the cluster are in the Secret beside its KubernetesCluster.
provider "talosupgrade" {
  management = {
    kubeconfig_path = "~/.kube/management"
  }

  credentials_from = {
    namespace = "tenant-a"
    name      = "prod"
  }
}

resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  publish_to = {
    kind      = "KubernetesCluster"
    namespace = "tenant-a"
    name      = "prod"
  }
}
