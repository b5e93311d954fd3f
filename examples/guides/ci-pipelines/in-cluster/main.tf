terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }

  # The state is a Secret beside the Job, and its lock is a Lease.
  backend "kubernetes" {
    in_cluster_config = true
    namespace         = "upgrades"
    secret_suffix     = "prod"
  }
}

# The environment variable TALOSCONFIG names the file that the Job mounts.
provider "talosupgrade" {}

resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  # Shorter than activeDeadlineSeconds of the Job: at this limit the node in progress is finished first.
  timeouts = {
    create = "3h"
    update = "3h"
  }
}
