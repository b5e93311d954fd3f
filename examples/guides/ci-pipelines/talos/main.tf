terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }

  backend "http" {} # of GitLab; elsewhere your own
}

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

  maintenance_window = {
    cron      = "0 22 * * 0-4"
    duration  = "5h"
    time_zone = "Europe/Oslo"
  }

  report_path = "report.html"

  timeouts = {
    create = "3h"
    update = "3h"
  }
}
