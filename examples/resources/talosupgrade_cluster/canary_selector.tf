# The workers with the label go first, whatever their names are, and must stay healthy for ten minutes.
resource "talosupgrade_cluster" "led" {
  talos_version   = "1.13.4"
  canary_selector = "node-restriction.kubernetes.io/upgrade=first"
  settle          = "10m"
}
