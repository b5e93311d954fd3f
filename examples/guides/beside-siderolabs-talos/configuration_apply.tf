resource "talos_machine_configuration_apply" "node" {
  for_each = local.nodes

  node                        = each.value.address
  client_configuration        = talos_machine_secrets.this.client_configuration
  machine_configuration_input = data.talos_machine_configuration.this[each.value.role].machine_configuration
  config_patches              = local.image_patches[each.key]
}

resource "talosupgrade_cluster" "this" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  # Configurations are applied before anything is upgraded, never beside it.
  depends_on = [talos_machine_configuration_apply.node]
}
