provider "talosupgrade" {
  talosconfig_path  = "${path.module}/talosconfig"
  image_factory_url = "https://factory.example.com"

  # What was copied to the mirror counts as available.
  release_source = {
    talos      = "factory"
    kubernetes = "oci://registry.example.com/siderolabs/kubelet"
  }
}

resource "talosupgrade_cluster" "closed" {
  talos_version      = "1.14.2"
  kubernetes_version = "1.36.1"

  # Leave it out where the repository that each node has is in the mirror.
  installer_image = provider::talosupgrade::installer_image({
    platform  = "metal"
    schematic = "c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
    factory   = "factory.example.com"
  })

  kubernetes = {
    images = {
      kubelet                 = "registry.example.com/siderolabs/kubelet"
      kube_apiserver          = "registry.example.com/k8s/kube-apiserver"
      kube_controller_manager = "registry.example.com/k8s/kube-controller-manager"
      kube_scheduler          = "registry.example.com/k8s/kube-scheduler"
      kube_proxy              = "registry.example.com/k8s/kube-proxy"
    }
  }
}
