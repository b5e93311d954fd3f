action "talosupgrade_rollback" "worker_0" {
  config {
    node   = "worker-0"
    reason = "its storage is slow with 1.13.4"
  }
}
