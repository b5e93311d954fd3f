locals {
  path = provider::talosupgrade::upgrade_path(
    { talos = "1.11.3", kubernetes = "1.33.4" },
    { talos = "1.13.4", kubernetes = "1.34.2" },
  )
}

# The states in between, without the one that the cluster is in and the one that it is to reach.
output "intermediate" {
  value = [
    for state in slice(local.path, 1, length(local.path) - 1) : "Talos ${state.talos}, Kubernetes ${state.kubernetes}"
  ]
}

check "talos_in_one_step" {
  assert {
    condition     = length(distinct(local.path[*].talos)) <= 2
    error_message = "Talos goes through ${join(", ", distinct(local.path[*].talos))}: set allow_intermediate_versions."
  }
}

# Talos alone: the results have kubernetes = null.
output "talos" {
  value = provider::talosupgrade::upgrade_path({ talos = "1.11.3" }, { talos = "1.13.4" })[*].talos
}
