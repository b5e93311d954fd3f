# A node that does not become healthy with the new Talos within 20 minutes is sent back to the one it ran before.
resource "talosupgrade_cluster" "returning" {
  talos_version = "1.13.4"
  node_timeout  = "20m"
  on_failure    = "rollback"
}
