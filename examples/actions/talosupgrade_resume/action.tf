# terraform apply -invoke=action.talosupgrade_resume.prod
action "talosupgrade_resume" "prod" {}
