terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }
}

# The kubeconfig comes from the Talos API.
provider "talosupgrade" {
  talosconfig_path = "${path.module}/talosconfig"
}
