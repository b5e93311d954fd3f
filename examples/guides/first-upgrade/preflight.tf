data "talosupgrade_preflight" "next" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
}

output "summary" {
  value = data.talosupgrade_preflight.next.summary
}

output "findings" {
  value = [for row in data.talosupgrade_preflight.next.checks : row if row.severity != "none"]
}
