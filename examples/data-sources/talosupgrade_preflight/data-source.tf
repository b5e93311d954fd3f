# What an upgrade would run into tonight, asked without upgrading anything.
data "talosupgrade_preflight" "next" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
}

output "in_the_way" {
  value = [
    for row in data.talosupgrade_preflight.next.checks :
    { check = row.name, node = row.node, finding = row.finding, remedy = row.remedy } if row.severity == "error"
  ]
}

# A warning of every plan and apply, which stops neither.
check "ready_for_the_next_upgrade" {
  data "talosupgrade_preflight" "this" {
    talos_version = "1.13.4"
  }

  assert {
    condition     = data.talosupgrade_preflight.this.passed
    error_message = data.talosupgrade_preflight.this.summary
  }
}
