# Two of them, with what they run.
list "talosupgrade_cluster" "edge" {
  provider         = talosupgrade
  include_resource = true

  config {
    contexts = ["edge-oslo", "edge-bergen"]
  }
}
