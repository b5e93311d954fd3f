# terraform apply -invoke=action.talosupgrade_etcd_snapshot.now
action "talosupgrade_etcd_snapshot" "now" {
  config {
    directory = "/var/backups/etcd"
  }
}
