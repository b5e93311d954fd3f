# These workers go first and must stay healthy for ten minutes; every later node must, too.
resource "talosupgrade_cluster" "careful" {
  talos_version   = "1.13.4"
  canary          = ["worker-0", "worker-7"]
  canary_selector = "node-restriction.kubernetes.io/upgrade=first"
  settle          = "10m"
}
