variable "next" {
  description = "What the first wave runs."
  type        = object({ talos = string, kubernetes = string })
  default     = { talos = "1.13.4", kubernetes = "1.35.2" }
}

variable "proven" {
  description = "What everything else runs. Raised to what the first wave runs once that has proven itself."
  type        = object({ talos = string, kubernetes = string })
  default     = { talos = "1.12.12", kubernetes = "1.34.8" }
}

# The clusters that nobody would miss.
resource "talosupgrade_cluster" "first" {
  for_each = toset(["edge-tromso"])

  context            = each.key
  talos_version      = var.next.talos
  kubernetes_version = var.next.kubernetes

  settle = "10m"
}

# Not before every cluster of the first wave is done, and not at all in an apply in which one of those failed.
resource "talosupgrade_cluster" "second" {
  for_each = toset(["edge-oslo", "edge-bergen"])

  context            = each.key
  talos_version      = var.proven.talos
  kubernetes_version = var.proven.kubernetes

  depends_on = [talosupgrade_cluster.first]
}
