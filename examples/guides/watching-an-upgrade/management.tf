provider "talosupgrade" {
  talosconfig_path = "~/.talos/config"

  # Where the object is. Without it, in the cluster that is upgraded.
  management = {
    kubeconfig_path = "~/.kube/management"
    context         = "talosupgrade"
  }
}
