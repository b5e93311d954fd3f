# The operator runs in a management cluster, and so does the KubernetesCluster that it keeps for prod.
provider "talosupgrade" {
  talosconfig_path = "~/.talos/config"

  management = {
    kubeconfig_path = "~/.kube/management"
    context         = "management"
  }
}

# This provider upgrades; the operator is held meanwhile, and finds everything up to date afterwards.
resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  publish_to = {
    kind      = "KubernetesCluster"
    namespace = "tenant-a"
    name      = "prod"
  }
}
