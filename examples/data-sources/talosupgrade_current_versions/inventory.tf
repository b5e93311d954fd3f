# Another cluster of the talosconfig.
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
      kubelet   = node.component_versions.kubelet
      serves    = node.reachable && node.ready == true && node.schedulable == true
    }
  }
}
