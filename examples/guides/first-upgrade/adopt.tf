# Takes the cluster in as it is. Needed once, and for a cluster that is not to be upgraded right away.
import {
  to = talosupgrade_cluster.prod
  id = "current"
}

resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.12.6"
  kubernetes_version = "1.34.2"
}
