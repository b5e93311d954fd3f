terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }

  # The rest comes from -backend-config: one state for each cluster.
  backend "kubernetes" {
    namespace = "upgrades"
  }
}

variable "cluster" {
  description = "Context of the talosconfig."
  type        = string
}

variable "talos_version" {
  type = string
}

variable "kubernetes_version" {
  type = string
}

# The environment variable TALOSCONFIG names the file.
provider "talosupgrade" {
  context = var.cluster
}

resource "talosupgrade_cluster" "this" {
  talos_version      = var.talos_version
  kubernetes_version = var.kubernetes_version
}
