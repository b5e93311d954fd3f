resource "talosupgrade_cluster" "saved" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  # On the runner, never among its artifacts; in a container, a volume. The files hold every Secret of the cluster.
  etcd_snapshot = {
    directory = "/var/backups/etcd"
  }
}

output "snapshot" {
  value = talosupgrade_cluster.saved.snapshot
}
