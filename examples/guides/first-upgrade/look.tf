data "talosupgrade_current_versions" "now" {}

data "talosupgrade_available_versions" "now" {}

output "nodes" {
  value = {
    for name, node in data.talosupgrade_current_versions.now.nodes :
    name => "${node.role} at ${node.address}, Talos ${node.talos_version}, kubelet ${node.component_versions.kubelet}"
  }
}

output "next" {
  value = data.talosupgrade_available_versions.now.next
}
