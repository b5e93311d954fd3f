provider "talosupgrade" {
  talosconfig_path = "~/.talos/config"
}

locals {
  # By the names of the contexts in that file.
  clusters = {
    edge-oslo   = { talos = "1.13.4", kubernetes = "1.35.2" }
    edge-bergen = { talos = "1.13.4", kubernetes = "1.35.2" }
    edge-tromso = { talos = "1.12.12", kubernetes = "1.34.8", held = ["worker-0"] }
  }
}

resource "talosupgrade_cluster" "edge" {
  for_each = local.clusters

  context            = each.key
  talos_version      = each.value.talos
  kubernetes_version = each.value.kubernetes

  node_overrides = { for name in try(each.value.held, []) : name => { hold = true } }
}
