variable "held" {
  description = "Nodes that are left alone by this run: the one that the Job is on."
  type        = set(string)
  default     = []
}

resource "talosupgrade_cluster" "itself" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  node_overrides = { for name in var.held : name => { hold = true } }
}
