# machine.install.image, which a reinstallation uses, follows a confirmed upgrade without a restart.
resource "talosupgrade_cluster" "reinstallable" {
  talos_version      = "1.13.4"
  sync_install_image = true
}
