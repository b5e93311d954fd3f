terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }
}

locals {
  mirror = "registry.example.com"
}

provider "talosupgrade" {
  talosconfig_path = "${path.module}/talosconfig"

  # An Image Factory of your own. Nodes whose image would have to come from a factory get it from here.
  image_factory_url = "https://factory.example.com"

  # What counts as available: what was copied to the mirror.
  release_source = {
    talos      = "factory"
    kubernetes = "oci://${local.mirror}/siderolabs/kubelet"
  }
}

resource "talosupgrade_cluster" "closed" {
  talos_version      = "1.14.2"
  kubernetes_version = "1.36.1"

  # Without it each node keeps the repository that it has, which is what you want where that is in the mirror already.
  installer_image = provider::talosupgrade::installer_image({
    platform  = "metal"
    schematic = "c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
    factory   = "factory.example.com"
  })

  kubernetes = {
    images = {
      kubelet                 = "${local.mirror}/siderolabs/kubelet"
      kube_apiserver          = "${local.mirror}/k8s/kube-apiserver"
      kube_controller_manager = "${local.mirror}/k8s/kube-controller-manager"
      kube_scheduler          = "${local.mirror}/k8s/kube-scheduler"
      kube_proxy              = "${local.mirror}/k8s/kube-proxy"
    }
  }

  # The line to the mirror is slow.
  retry = {
    attempts = 5
    backoff  = "1m"
  }
}
