# Talos 1.12 and Kubernetes 1.34 to Talos 1.13 and Kubernetes 1.36, by way of Kubernetes 1.35.
resource "talosupgrade_cluster" "prod" {
  talos_version               = "1.13.4"
  kubernetes_version          = "1.36.1"
  allow_intermediate_versions = true
}
