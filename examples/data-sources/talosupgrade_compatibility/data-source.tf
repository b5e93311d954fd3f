variable "kubernetes_version" {
  type    = string
  default = "1.35.2"
}

# The whole matrix.
data "talosupgrade_compatibility" "all" {}

# The row of one Talos version.
data "talosupgrade_compatibility" "talos" {
  talos_version = "1.13.4"
}

# The rows that run one Kubernetes version.
data "talosupgrade_compatibility" "kubernetes" {
  kubernetes_version = var.kubernetes_version
}

locals {
  # Newest release of each Talos minor version, such as { "1.13" = "1.13.11" }.
  newest_talos = {
    for row in data.talosupgrade_compatibility.all.matrix : row.talos => row.newest_talos if row.newest_talos != null
  }
}

output "talos_for_kubernetes" {
  value = data.talosupgrade_compatibility.kubernetes.matrix[*].talos
}

output "kubernetes_of_talos" {
  value = "${data.talosupgrade_compatibility.talos.matrix[0].kubernetes_min} to ${data.talosupgrade_compatibility.talos.matrix[0].kubernetes_max}"
}

output "talos_can_replace" {
  value = "Talos ${data.talosupgrade_compatibility.talos.matrix[0].upgradeable_from_min} to ${data.talosupgrade_compatibility.talos.matrix[0].upgradeable_from_max}, as known on ${data.talosupgrade_compatibility.talos.as_of}"
}

check "kubernetes_fits" {
  assert {
    condition     = contains(data.talosupgrade_compatibility.kubernetes.matrix[*].talos, "1.13")
    error_message = "Talos 1.13 does not run Kubernetes ${var.kubernetes_version}."
  }
}
