terraform {
  required_providers {
    talosupgrade = { source = "vitistack/talosupgrade" }
  }
}

provider "talosupgrade" {
  talosconfig_path = "~/.talos/config"
}

resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.14.6"
  kubernetes_version = "1.36.6"
}
