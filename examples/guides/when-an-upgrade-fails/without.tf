# All other nodes go on, and worker-2 keeps what it runs until somebody has time for it.
resource "talosupgrade_cluster" "prod" {
  talos_version = "1.13.4"

  node_overrides = {
    "worker-2" = { hold = true }
  }
}
