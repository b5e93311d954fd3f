# Where the cluster of the provider can go. The list of releases is the one that is built in.
data "talosupgrade_available_versions" "cluster" {}

locals {
  # Patches of the Talos minor version that runs, the newest last.
  talos_patches = [
    for v in data.talosupgrade_available_versions.cluster.next.talos : v
    if split(".", v)[1] == split(".", data.talosupgrade_available_versions.cluster.talos_version)[1]
  ]
}

output "talos_patch" {
  value = try(reverse(local.talos_patches)[0], null)
}

output "latest" {
  value = "Talos ${data.talosupgrade_available_versions.cluster.latest_talos}, Kubernetes ${data.talosupgrade_available_versions.cluster.latest_kubernetes}"
}

# Warns in every plan as long as the cluster is behind. Inside of a check, a source that does not answer is a warning too.
check "up_to_date" {
  data "talosupgrade_available_versions" "newest" {
    release_source = {
      talos      = "factory"
      kubernetes = "oci://registry.k8s.io/kube-apiserver"
    }
  }

  assert {
    condition     = data.talosupgrade_available_versions.newest.latest_talos == data.talosupgrade_available_versions.newest.talos_version
    error_message = "Talos ${data.talosupgrade_available_versions.newest.latest_talos} is out; the cluster runs ${data.talosupgrade_available_versions.newest.talos_version}."
  }
}
