# The operator upgrades, one half after the other and one minor release of Kubernetes at a time; this provider checks before
# it asks, follows, and looks at every node afterwards.
resource "talosupgrade_cluster" "prod" {
  talos_version               = "1.13.4"
  kubernetes_version          = "1.36.1"
  allow_intermediate_versions = true

  mode = "delegate"

  publish_to = {
    kind      = "KubernetesCluster"
    namespace = "tenant-a"
    name      = "prod"
  }
}
