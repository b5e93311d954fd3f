provider "talosupgrade" {
  talosconfig_path = "~/.talos/config"
}

locals {
  clusters = { # by context
    edge-oslo   = { talos = "1.13.4", kubernetes = "1.35.2" }
    edge-bergen = { talos = "1.12.12", kubernetes = "1.34.8" }
  }
}

resource "talosupgrade_cluster" "edge" {
  for_each = local.clusters

  context            = each.key
  talos_version      = each.value.talos
  kubernetes_version = each.value.kubernetes
}
