provider "talosupgrade" {
  endpoints            = module.machines.control_plane_addresses
  client_configuration = module.machines.client_configuration
}

resource "talosupgrade_cluster" "this" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
  depends_on         = [module.machines]
}
