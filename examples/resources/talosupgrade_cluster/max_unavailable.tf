# A quarter of the workers at a time. The registry serves twenty nodes at once.
resource "talosupgrade_cluster" "wide" {
  talos_version   = "1.13.4"
  max_unavailable = "25%"
  parallel_pulls  = 20
}
