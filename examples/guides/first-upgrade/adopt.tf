import {
  to = talosupgrade_cluster.prod
  id = "current"
}

resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.12.6"
  kubernetes_version = "1.34.2"
}
