# A quarter of the workers at a time, but only one of those with disks.
resource "talosupgrade_cluster" "pooled" {
  talos_version   = "1.13.4"
  max_unavailable = "25%"

  pools = {
    storage = {
      selector        = "node-restriction.kubernetes.io/pool=storage"
      max_unavailable = "1"
    }
    compute = {
      selector        = "node-restriction.kubernetes.io/pool in (general, gpu)"
      max_unavailable = "50%"
    }
  }
}
