locals {
  next   = { talos = "1.13.4", kubernetes = "1.35.2" }
  proven = { talos = "1.12.12", kubernetes = "1.34.8" }
}

resource "talosupgrade_cluster" "first" {
  for_each = toset(["edge-tromso"])

  context            = each.key
  talos_version      = local.next.talos
  kubernetes_version = local.next.kubernetes
}

resource "talosupgrade_cluster" "second" {
  for_each = toset(["edge-oslo", "edge-bergen"])

  context            = each.key
  talos_version      = local.proven.talos
  kubernetes_version = local.proven.kubernetes

  depends_on = [talosupgrade_cluster.first]
}
