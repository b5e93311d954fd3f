# machine.install.image follows, for whoever reinstalls a node.
resource "talosupgrade_cluster" "reinstallable" {
  talos_version      = "1.13.4"
  sync_install_image = true
}
