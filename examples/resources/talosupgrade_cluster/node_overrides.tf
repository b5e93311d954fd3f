resource "talosupgrade_cluster" "mixed" {
  talos_version = "1.13.4"
  canary        = ["worker-0"]

  node_overrides = {
    # It has drivers that no other node has.
    "gpu-0" = {
      installer_image = "factory.talos.dev/metal-installer/c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
    }
    "worker-3" = {
      hold = true
    }
    # It shows whether the firmware boots the new system.
    "worker-0" = {
      reboot_mode = "powercycle"
    }
  }
}
