# Given for one command, such as with TF_VAR_talosconfig in a pipeline: neither plan file nor state keep it.
variable "talosconfig" {
  type      = string
  ephemeral = true
}

provider "talosupgrade" {
  talosconfig = var.talosconfig
}
