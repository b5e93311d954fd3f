action "talosupgrade_preflight" "kubernetes" {
  config {
    kubernetes_version = "1.35.2"
  }
}

resource "talosupgrade_cluster" "prod" {
  talos_version = "1.13.4"

  # Talos first; then, what would stand in the way of the next Kubernetes.
  lifecycle {
    action_trigger {
      events  = [after_update]
      actions = [action.talosupgrade_preflight.kubernetes]
    }
  }
}
