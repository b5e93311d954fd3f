variable "talos_version" {
  default = "1.13.4"
}

variable "kubernetes_version" {
  default = "1.35.2"
}

# Stops a plan before anything is touched.
resource "talosupgrade_cluster" "prod" {
  talos_version = var.talos_version

  lifecycle {
    precondition {
      condition     = provider::talosupgrade::compatible(var.talos_version, var.kubernetes_version)
      error_message = "Talos ${var.talos_version} does not run Kubernetes ${var.kubernetes_version}."
    }
  }
}

# Only warns.
check "ready_for_the_next_kubernetes" {
  assert {
    condition     = provider::talosupgrade::compatible(var.talos_version, "1.36.0")
    error_message = "Kubernetes 1.36 needs a newer Talos than ${var.talos_version}."
  }
}
