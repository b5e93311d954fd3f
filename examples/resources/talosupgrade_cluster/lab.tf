# A lab in which nothing has to survive, and in which releases may be tried out that are newer than this version of the provider.
resource "talosupgrade_cluster" "lab" {
  talos_version          = "1.13.4"
  allow_unknown_versions = true

  # Workers last.
  order = "control-planes-first"

  # Nodes reboot with their pods on them. They need Talos 1.13 for that: older ones drain themselves.
  drain = {
    enabled = false
  }

  kubernetes = {
    manifests = {
      # kube-proxy, CoreDNS and the network stay as they are.
      sync = false
    }
  }

  # The machines answer slowly.
  timeouts = {
    read   = "3m"
    create = "8h"
    update = "8h"
    delete = "5m"
  }
}

# Objects of which Talos changed a field that may not change are recreated: each is away for a moment.
resource "talosupgrade_cluster" "recreating" {
  kubernetes_version = "1.35.2"

  kubernetes = {
    manifests = {
      sync  = true
      force = true
    }
  }
}
