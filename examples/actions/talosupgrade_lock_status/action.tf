# terraform apply -invoke=action.talosupgrade_lock_status.prod
action "talosupgrade_lock_status" "prod" {}
