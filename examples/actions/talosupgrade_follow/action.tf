# terraform apply -invoke=action.talosupgrade_follow.prod
action "talosupgrade_follow" "prod" {}
