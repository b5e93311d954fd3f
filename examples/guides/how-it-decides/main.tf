resource "talosupgrade_cluster" "edge" {
  talos_version               = "1.13.4"
  kubernetes_version          = "1.35.2"
  allow_intermediate_versions = true

  canary          = ["worker-3"]
  max_unavailable = "50%"
  settle          = "5m"
}
