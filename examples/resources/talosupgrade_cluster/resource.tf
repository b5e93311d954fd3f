# Every node to Talos 1.13.4, workers first and one at a time, and then Kubernetes to 1.35.2.
resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
}
