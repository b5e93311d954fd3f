# Talos versions from a private Image Factory, Kubernetes versions from a mirror.
provider "talosupgrade" {
  alias             = "mirrored"
  image_factory_url = "https://factory.example.com"

  release_source = {
    talos      = "factory"
    kubernetes = "oci://registry.example.com/mirror/kube-apiserver"
  }
}
