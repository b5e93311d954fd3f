variable "reason" {
  type    = string
  default = "ola: storage is degraded"
}

action "talosupgrade_suspend" "prod" {
  config {
    reason = var.reason
  }
}
