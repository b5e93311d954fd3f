# Two workers go first and must stay healthy for ten minutes before anything else is touched; every later node must, too.
resource "talosupgrade_cluster" "careful" {
  talos_version = "1.13.4"
  canary        = ["worker-0", "worker-7"]
  settle        = "10m"
}
