action "talosupgrade_retry_node" "worker_0" {
  config {
    node = "worker-0"
  }
}
