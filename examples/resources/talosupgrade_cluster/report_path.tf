resource "talosupgrade_cluster" "drawn" {
  talos_version = "1.13.4"

  # One file a cluster, where the job keeps its artifacts.
  report_path = "${path.root}/reports/prod.html"
}
