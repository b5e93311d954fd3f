variable "talos_version" {
  type    = string
  default = "1.13.4"
}

data "talosupgrade_available_versions" "approved" {
  talos_version      = "1.12.6"
  kubernetes_version = "1.34.2"

  release_source = {
    talos_versions = ["1.12.12", "1.13.4"]
  }
}

resource "talosupgrade_cluster" "approved" {
  talos_version = var.talos_version

  lifecycle {
    precondition {
      condition     = contains(data.talosupgrade_available_versions.approved.next.talos, var.talos_version)
      error_message = "Talos ${var.talos_version} is not approved. Next may come: ${join(", ", data.talosupgrade_available_versions.approved.next.talos)}."
    }
  }
}
