resource "talosupgrade_cluster" "this" {
  talos_version = "1.12.0"

  publish_to = {
    api_version = "cluster.x-k8s.io/v1beta2"
    kind        = "Cluster"
    namespace   = "fleet"
    name        = "my-cluster"
  }
}
