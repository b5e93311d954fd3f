variable "running" {
  type        = bool
  description = "Whether there is a cluster."
  default     = true
}

resource "talosupgrade_cluster" "this" {
  count = var.running ? 1 : 0

  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"
}
