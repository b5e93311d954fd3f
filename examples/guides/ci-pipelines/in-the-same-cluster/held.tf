variable "held" {
  type    = set(string)
  default = []
}

resource "talosupgrade_cluster" "itself" {
  talos_version  = "1.13.4"
  node_overrides = { for name in var.held : name => { hold = true } }
}
