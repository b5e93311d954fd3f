data "talosupgrade_current_versions" "now" {}

data "talosupgrade_available_versions" "now" {}

output "nodes" {
  value = {
    for name, node in data.talosupgrade_current_versions.now.nodes :
    name => format("%s at %s, Talos %s, kubelet %s", node.role, node.address,
    coalesce(node.talos_version, "unknown"), coalesce(node.component_versions.kubelet, "unknown"))
  }
}

output "next" {
  value = data.talosupgrade_available_versions.now.next
}
