# What siderolabs/talos emits can be handed over as it is. Its talos_client_configuration needs endpoints for that.
provider "talosupgrade" {
  alias       = "emitted"
  talosconfig = data.talos_client_configuration.this.talos_config
}

# The same without a talosconfig.
provider "talosupgrade" {
  alias                = "parts"
  endpoints            = ["10.5.0.2", "10.5.0.3", "10.5.0.4"]
  client_configuration = talos_machine_secrets.this.client_configuration
}
