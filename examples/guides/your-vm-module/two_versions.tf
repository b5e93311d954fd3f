module "machines" {
  source = "example.com/acme/talos-machines/any"

  # What the machines were created from, for good.
  talos_version = "1.12.6"
}

provider "talosupgrade" {
  endpoints            = module.machines.control_plane_addresses
  client_configuration = module.machines.client_configuration
}

resource "talosupgrade_cluster" "this" {
  # What they run.
  talos_version = "1.13.4"
  depends_on    = [module.machines]
}
