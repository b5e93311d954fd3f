resource "talosupgrade_cluster" "prod" {
  kubernetes_version = "1.35.2"
}
