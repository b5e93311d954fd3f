data "talosupgrade_available_versions" "mirrored" {
  talos_version      = "1.12.6"
  kubernetes_version = "1.34.2"

  release_source = {
    talos      = "oci://registry.example.com:5000/siderolabs/installer"
    kubernetes = "oci://registry.example.com:5000/siderolabs/kubelet"
  }
}
