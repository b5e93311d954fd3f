# While somebody has suspended the upgrades of the cluster, an apply ends with an error instead of waiting.
resource "talosupgrade_cluster" "impatient" {
  talos_version = "1.13.4"
  on_suspend    = "stop"
}
