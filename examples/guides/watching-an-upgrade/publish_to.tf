provider "talosupgrade" {
  talosconfig_path = pathexpand("~/.talos/config")

  # Where the object is. Without it, in the cluster that is upgraded.
  management = {
    kubeconfig_path = pathexpand("~/.kube/management")
    context         = "talosupgrade"
  }
}

resource "talosupgrade_cluster" "this" {
  talos_version      = "1.12.0"
  kubernetes_version = "1.35.0"

  publish_to = {
    kind      = "KubernetesCluster"
    namespace = "default"
    name      = "my-cluster"
  }
}
