# Labels say which nodes are left alone, and which have drivers of their own.
resource "talosupgrade_cluster" "autoscaled" {
  talos_version = "1.13.4"

  selector_overrides = [
    {
      selector = "node-restriction.kubernetes.io/upgrade=hold"
      hold     = true
    },
    # Canaries show whether the firmware boots the new system; others use kexec.
    {
      selector    = "node-restriction.kubernetes.io/upgrade=first"
      reboot_mode = "powercycle"
    },
    {
      selector        = "node-restriction.kubernetes.io/pool=gpu"
      installer_image = "factory.talos.dev/metal-installer/c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
    },
  ]
}
