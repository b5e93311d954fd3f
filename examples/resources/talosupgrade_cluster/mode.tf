resource "talosupgrade_cluster" "delegated" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
  mode               = "delegate"

  publish_to = {
    kind      = "KubernetesCluster"
    namespace = "tenant-a"
    name      = "prod"
  }
}
