# A lab in which nothing has to survive.
resource "talosupgrade_cluster" "lab" {
  talos_version = "1.13.4"

  # Releases may be newer than the provider knows.
  allow_unknown_versions = true

  # Workers last.
  order = "control-planes-first"

  # Nodes reboot with their pods on them, and no budget is asked. Refused below Talos 1.13.
  drain = {
    enabled = false
  }

  # Objects that cannot be changed are recreated, and are away for a moment.
  kubernetes = {
    manifests = {
      sync  = true
      force = true
    }
  }

  # The machines answer slowly.
  timeouts = {
    read   = "3m"
    delete = "5m"
  }
}
