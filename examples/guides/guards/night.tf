resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  # At least "90s" with rook-ceph: Rook looks once a minute.
  settle = "5m"

  etcd_snapshot = {
    directory = "/var/backups/etcd"
  }

  # There is a CephCluster, and each reports HEALTH_OK.
  gates = [
    { preset = "rook-ceph", timeout = "1h" },
  ]

  # Nodes start to move between 22:00 and 03:00 of the nights before working days. When the window closes,
  # nodes in progress are finished and the run stops with an error; the next night's apply continues.
  maintenance_window = {
    cron      = "0 22 * * 0-4"
    duration  = "5h"
    time_zone = "Europe/Oslo"
  }
}
