# For a job that nobody watches: careful with nodes, patient with registries, and never in the way of the next run.
resource "talosupgrade_cluster" "prod" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  node_timeout = "20m"
  on_failure   = "rollback"

  retry = {
    attempts = 4
    backoff  = "1m"
  }

  # Longer than a roll takes. The job needs 70 minutes more (100 below Talos 1.13), to finish the node in progress.
  timeouts = {
    create = "3h"
    update = "3h"
  }

  lifecycle {
    prevent_destroy = true
  }
}
