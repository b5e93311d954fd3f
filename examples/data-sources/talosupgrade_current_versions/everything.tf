# All that there is to know of another cluster of the talosconfig.
data "talosupgrade_current_versions" "edge" {
  context = "edge-oslo"
}

locals {
  edge = data.talosupgrade_current_versions.edge
}

output "edge" {
  value = {
    cluster           = local.edge.id
    talos             = local.edge.talos.lowest == local.edge.talos.highest ? local.edge.talos.lowest : "${local.edge.talos.lowest} to ${local.edge.talos.highest}"
    kubernetes        = local.edge.kubernetes.lowest == local.edge.kubernetes.highest ? local.edge.kubernetes.lowest : "${local.edge.kubernetes.lowest} to ${local.edge.kubernetes.highest}"
    reinstalled_would = local.edge.images.installer
  }
}

output "edge_nodes" {
  value = {
    for name, node in local.edge.nodes : name => {
      role      = node.role
      address   = node.address
      platform  = node.platform
      schematic = node.schematic
      boot      = node.boot_id
      talos     = node.talos_version
      serves    = node.reachable && node.ready == true && node.schedulable == true

      kubelet                 = node.component_versions.kubelet
      kube_apiserver          = node.component_versions.kube_apiserver
      kube_controller_manager = node.component_versions.kube_controller_manager
      kube_scheduler          = node.component_versions.kube_scheduler
      kube_proxy              = node.component_versions.kube_proxy
    }
  }
}

# Images that a machine configuration names and that do not come from the mirror.
output "edge_not_mirrored" {
  value = {
    for name, node in local.edge.nodes : name => [
      for image in [
        node.install_image, node.images.installer, node.images.kubelet, node.images.kube_apiserver, node.images.kube_controller_manager, node.images.kube_scheduler, node.images.kube_proxy,
      ] : image if image != null && !startswith(coalesce(image, "-"), "registry.example.com/")
    ]
  }
}

# On which images all nodes agree; null where they do not.
output "edge_images" {
  value = {
    kubelet                 = local.edge.images.kubelet
    kube_apiserver          = local.edge.images.kube_apiserver
    kube_controller_manager = local.edge.images.kube_controller_manager
    kube_scheduler          = local.edge.images.kube_scheduler
    kube_proxy              = local.edge.images.kube_proxy
  }
}
