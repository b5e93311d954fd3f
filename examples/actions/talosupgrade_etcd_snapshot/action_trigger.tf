action "talosupgrade_etcd_snapshot" "after" {
  config {
    directory = "/var/backups/etcd"
  }
}

resource "talosupgrade_cluster" "prod" {
  talos_version = "1.13.4"

  lifecycle {
    action_trigger {
      events  = [after_create, after_update]
      actions = [action.talosupgrade_etcd_snapshot.after]
    }
  }
}
