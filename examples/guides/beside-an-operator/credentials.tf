terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }
}

provider "talosupgrade" {
  management = {
    kubeconfig_path = "~/.kube/management"
  }

  # In place of a talosconfig and a kubeconfig: both are in the Secret beside the KubernetesCluster.
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
