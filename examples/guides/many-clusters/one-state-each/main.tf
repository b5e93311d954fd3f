terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }

  backend "kubernetes" {
    namespace = "upgrades"
  }
}

variable "cluster" {
  type = string
}

variable "talos_version" {
  type = string
}

variable "kubernetes_version" {
  type = string
}

provider "talosupgrade" {
  context = var.cluster
}

resource "talosupgrade_cluster" "this" {
  talos_version      = var.talos_version
  kubernetes_version = var.kubernetes_version
}
