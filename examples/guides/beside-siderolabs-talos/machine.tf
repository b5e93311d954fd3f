# What a new node starts with. Upgrades do not change it.
locals {
  created_with = { talos = "v1.12.6", kubernetes = "v1.34.2" }
}

data "talos_machine_configuration" "node" {
  for_each = local.nodes

  cluster_name       = "prod"
  cluster_endpoint   = "https://10.5.0.10:6443"
  machine_type       = each.value.role
  machine_secrets    = talos_machine_secrets.this.machine_secrets
  talos_version      = local.created_with.talos
  kubernetes_version = local.created_with.kubernetes
  config_patches     = local.image_patches[each.key]
}

resource "talos_machine" "node" {
  for_each = local.nodes

  node                  = each.value.address
  client_configuration  = talos_machine_secrets.this.client_configuration
  machine_configuration = data.talos_machine_configuration.node[each.key].machine_configuration

  image                           = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:${local.created_with.talos}"
  drain_on_upgrade                = false
  ignore_kubernetes_upgrade_drift = true

  lifecycle {
    ignore_changes = [image] # talosupgrade_cluster owns the version of Talos
  }
}

resource "talos_cluster" "this" {
  node                 = local.nodes["cp-0"].address
  control_plane_nodes  = [for node in local.nodes : node.address if node.role == "controlplane"]
  client_configuration = talos_machine_secrets.this.client_configuration
  kubernetes_version   = local.created_with.kubernetes

  lifecycle {
    ignore_changes = [kubernetes_version] # and that of Kubernetes
  }

  depends_on = [talos_machine.node]
}
