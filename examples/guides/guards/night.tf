resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  settle = "5m"

  etcd_snapshot = {
    directory = "/var/backups/etcd"
  }

  gates = [
    { preset = "rook-ceph", timeout = "1h" },
  ]

  maintenance_window = {
    cron      = "0 22 * * *"
    duration  = "5h"
    time_zone = "Europe/Oslo"
  }
}
