# The image of 1.13.4 was built again, and pushed under the tag that the nodes have already.
resource "talosupgrade_cluster" "prod" {
  talos_version   = "1.13.4"
  installer_image = "registry.example.com/talos/installer@sha256:9f2c5a0e6b1d4c8f7a3e5d2b1c0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a29"
}
