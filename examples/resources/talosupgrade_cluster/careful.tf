resource "talosupgrade_cluster" "careful" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  # Nothing begins without a snapshot. The file holds every Secret of the cluster.
  etcd_snapshot = {
    directory = "/var/backups/etcd"
  }

  # Nothing begins while Longhorn rebuilds volumes, or by day. Without Longhorn, remove the gate: it would stop the run.
  gates = [{
    preset  = "longhorn"
    timeout = "45m"
  }]
  maintenance_window = {
    cron      = "0 22 * * 0-4"
    duration  = "6h"
    time_zone = "Europe/Oslo"
  }

  # One worker goes first. Every node has to stay healthy before the next one.
  canary = ["worker-0"]
  settle = "5m"

  # A longer drain, or a volume that stays attached, stops the run and uncordons the node.
  drain = {
    timeout          = "10m"
    wait_for_volumes = "required"
  }

  # A node that does not become healthy goes back to its old system, if that is safe. The run fails.
  node_timeout = "45m"
  on_failure   = "rollback"

  # The job needs this long, plus twice node_timeout and 30 minutes (60 when upgrading from Talos below 1.13).
  timeouts = {
    create = "4h"
    update = "4h"
  }

  # Keep it with the job, also if that fails.
  report_path = "${path.root}/upgrade.html"
}
