variable "schematic" {
  description = "Image Factory schematic; the default is Talos without extensions."
  default     = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
}

# factory.talos.dev/metal-installer/<schematic>:v1.13.4, for machine.install.image.
output "install_image" {
  value = provider::talosupgrade::installer_image({
    platform  = "metal"
    schematic = var.schematic
    version   = "1.13.4"
  })
}

# Without a version it is the repository, without a tag: what installer_image of the resource takes.
resource "talosupgrade_cluster" "prod" {
  talos_version = "1.13.4"

  installer_image = provider::talosupgrade::installer_image({
    platform    = "nocloud"
    schematic   = var.schematic
    secure_boot = true
    factory     = "factory.example.com"
  })
}
