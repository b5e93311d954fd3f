# Which images the machine configurations of another cluster name, and what runs.
data "talosupgrade_current_versions" "mirrored" {
  context = "edge-oslo"
}

locals {
  mirrored = data.talosupgrade_current_versions.mirrored
}

# Images that do not come from the mirror.
output "not_mirrored" {
  value = {
    for name, node in local.mirrored.nodes : name => [
      for image in distinct(concat([node.install_image], values(node.images))) : image
      if image != null && !startswith(coalesce(image, "-"), "registry.example.com/")
    ]
  }
}

# On which images all nodes agree; null where they do not.
output "agreed_images" {
  value = {
    kubelet                 = local.mirrored.images.kubelet
    kube_apiserver          = local.mirrored.images.kube_apiserver
    kube_controller_manager = local.mirrored.images.kube_controller_manager
    kube_scheduler          = local.mirrored.images.kube_scheduler
    kube_proxy              = local.mirrored.images.kube_proxy
  }
}

output "running" {
  value = { for name, node in local.mirrored.nodes : name => node.component_versions }
}
