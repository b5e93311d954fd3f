data "talosupgrade_current_versions" "this" {}

output "lowest_talos" {
  value = data.talosupgrade_current_versions.this.talos.lowest
}

output "kubelet_image" {
  value = data.talosupgrade_current_versions.this.images.kubelet
}

output "not_ready" {
  value = [for name, node in data.talosupgrade_current_versions.this.nodes : name if node.ready != true]
}

check "one_version" {
  assert {
    condition     = data.talosupgrade_current_versions.this.talos.lowest == data.talosupgrade_current_versions.this.talos.highest
    error_message = "The nodes run Talos ${data.talosupgrade_current_versions.this.talos.lowest} to ${data.talosupgrade_current_versions.this.talos.highest}."
  }
}
