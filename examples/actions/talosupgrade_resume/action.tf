action "talosupgrade_resume" "prod" {}
