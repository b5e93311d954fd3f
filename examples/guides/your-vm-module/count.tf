variable "running" {
  type    = bool
  default = true
}

resource "talosupgrade_cluster" "this" {
  count         = var.running ? 1 : 0
  talos_version = "1.13.4"
}
