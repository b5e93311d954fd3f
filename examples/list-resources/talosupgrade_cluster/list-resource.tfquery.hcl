# Every context of the talosconfig.
list "talosupgrade_cluster" "all" {
  provider = talosupgrade
}
