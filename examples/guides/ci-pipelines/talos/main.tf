terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }

  # GitLab: everything else is in the variables TF_HTTP_*. Elsewhere: the backend that you have.
  backend "http" {}
}

# The environment variable TALOSCONFIG names the file.
provider "talosupgrade" {}

locals {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
}

# The roll as data, for the policy.
data "talosupgrade_preflight" "prod" {
  talos_version      = local.talos_version
  kubernetes_version = local.kubernetes_version
}

resource "talosupgrade_cluster" "prod" {
  talos_version      = local.talos_version
  kubernetes_version = local.kubernetes_version

  # Careful with nodes, and patient with registries: nobody is watching.
  node_timeout = "30m"
  settle       = "2m"

  retry = {
    attempts = 4
    backoff  = "1m"
  }

  # The schedule of the pipeline fires a few minutes later.
  maintenance_window = {
    cron      = "0 22 * * 0-4"
    duration  = "5h"
    time_zone = "Europe/Oslo"
  }

  # The pipeline keeps it, also when the apply fails.
  report_path = "report.html"

  # Shorter than the job may run: at this limit the node in progress is finished, and the run ends in good order.
  timeouts = {
    create = "3h"
    update = "3h"
  }
}
