resource "talosupgrade_cluster" "prod" {
  kubernetes_version = "1.35.2"

  kubernetes = {
    images = {
      kubelet = "registry.example.com:5000/siderolabs/kubelet"
    }
  }
}
