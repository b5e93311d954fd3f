variable "next" {
  description = "What the first wave runs."
  type        = map(string)
  default     = { talos = "1.13.4", kubernetes = "1.35.2" }
}

variable "proven" {
  description = "What the rest runs; raised to next once that has proven itself."
  type        = map(string)
  default     = { talos = "1.12.12", kubernetes = "1.34.8" }
}

resource "talosupgrade_cluster" "first" {
  for_each = toset(["edge-tromso"])

  context            = each.key
  talos_version      = var.next.talos
  kubernetes_version = var.next.kubernetes
  settle             = "10m"
}

resource "talosupgrade_cluster" "second" {
  for_each = toset(["edge-oslo", "edge-bergen"])

  context            = each.key
  talos_version      = var.proven.talos
  kubernetes_version = var.proven.kubernetes

  depends_on = [talosupgrade_cluster.first]
}
