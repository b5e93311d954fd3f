# Neither a talosconfig nor a kubeconfig of the cluster: both are in the Secret that the operator keeps beside its object.
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
