# terraform apply -invoke=action.talosupgrade_preflight.tonight
action "talosupgrade_preflight" "tonight" {
  config {
    talos_version      = "1.13.4"
    kubernetes_version = "1.35.2"
  }
}
