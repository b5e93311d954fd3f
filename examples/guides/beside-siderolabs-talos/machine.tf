data "talos_machine_configuration" "node" {
  for_each = local.nodes

  cluster_name     = "prod"
  cluster_endpoint = "https://10.5.0.10:6443"
  machine_type     = each.value.role
  machine_secrets  = talos_machine_secrets.this.machine_secrets
  config_patches   = local.image_patches[each.key]
}

resource "talos_machine" "node" {
  for_each = local.nodes

  node                  = each.value.address
  client_configuration  = talos_machine_secrets.this.client_configuration
  machine_configuration = data.talos_machine_configuration.node[each.key].machine_configuration

  # talosupgrade_cluster owns the Kubernetes version; image stays unset, because it owns the Talos version as well.
  ignore_kubernetes_upgrade_drift = true
}

resource "talosupgrade_cluster" "this" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  # Configurations are applied before anything is upgraded, never beside it.
  depends_on = [talos_machine.node]
}
