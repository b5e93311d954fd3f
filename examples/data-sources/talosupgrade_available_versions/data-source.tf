# Where the cluster of the provider can go, by the built-in list of releases.
data "talosupgrade_available_versions" "cluster" {}

locals {
  available = data.talosupgrade_available_versions.cluster
}

output "latest" {
  value = "Talos ${local.available.latest_talos}, Kubernetes ${local.available.latest_kubernetes}"
}

# The newest patch of the Talos minor version that runs.
output "talos_patch" {
  value = try(reverse([
    for v in local.available.next.talos : v if split(".", v)[1] == split(".", local.available.talos_version)[1]
  ])[0], null)
}

# In a check, a source that does not answer is a warning too.
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
