variable "reason" {
  type    = string
  default = "ola: storage is degraded"
}

# terraform apply -invoke=action.talosupgrade_suspend.prod -var 'reason=ola: storage is degraded'
action "talosupgrade_suspend" "prod" {
  config {
    reason = var.reason
  }
}
