# Every node to Talos 1.13.4, workers first and one at a time, and then Kubernetes to 1.35.2.
resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
}

# The same for every context of one talosconfig, with more of what can be chosen.
resource "talosupgrade_cluster" "edge" {
  for_each = toset(["edge-oslo", "edge-bergen"])

  context            = each.key
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  order        = "control-planes-first"
  reboot_mode  = "powercycle"
  node_timeout = "45m"

  drain = {
    timeout    = "10m"
    on_timeout = "delete"
  }

  timeouts = {
    create = "6h"
    update = "6h"
  }
}
