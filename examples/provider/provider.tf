terraform {
  required_providers {
    talosupgrade = { source = "vitistack/talosupgrade" }
  }
}

provider "talosupgrade" {
  talosconfig_path = "~/.talos/config"
}

resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.12"
  kubernetes_version = "1.35.2"
}
