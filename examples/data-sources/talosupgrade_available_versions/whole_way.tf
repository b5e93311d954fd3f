# Another cluster of the talosconfig: all that it could reach, release candidates of Talos included, and approved releases of Kubernetes alone.
data "talosupgrade_available_versions" "edge" {
  context             = "edge-oslo"
  include_prereleases = true

  release_source = {
    talos               = "embedded"
    kubernetes_versions = ["1.34.8", "1.35.2", "1.36.1"]
  }
}

locals {
  versions = data.talosupgrade_available_versions.edge
}

output "edge_runs" {
  value = "Talos ${local.versions.talos_version}, Kubernetes ${local.versions.kubernetes_version}"
}

output "edge_next" {
  value = { talos = local.versions.next.talos, kubernetes = local.versions.next.kubernetes }
}

output "edge_in_the_end" {
  value = { talos = local.versions.eventual.talos, kubernetes = local.versions.eventual.kubernetes }
}

# How many releases there are, who said so, and how old that is: null where somebody was asked just now.
output "edge_asked" {
  value = {
    talos      = "${length(local.versions.talos_versions)} from ${local.versions.source.talos}, ${coalesce(local.versions.as_of.talos, "now")}"
    kubernetes = "${length(local.versions.kubernetes_versions)} from ${local.versions.source.kubernetes}, ${coalesce(local.versions.as_of.kubernetes, "now")}"
  }
}
