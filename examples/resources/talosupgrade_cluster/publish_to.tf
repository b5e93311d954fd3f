# The progress goes where the tenant looks, and the operator is held meanwhile.
resource "talosupgrade_cluster" "published" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  publish_to = {
    kind      = "KubernetesCluster"
    namespace = "tenant-a"
    name      = "prod"
  }
}
