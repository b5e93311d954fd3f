terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }
}

# The talosconfig lies beside this file. The kubeconfig is asked from the Talos API.
provider "talosupgrade" {
  talosconfig_path = "${path.module}/talosconfig"
}
