action "talosupgrade_etcd_snapshot" "now" {
  config {
    directory = "/var/backups/etcd"
  }
}
