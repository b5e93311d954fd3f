provider "talosupgrade" {
  alias            = "oslo"
  talosconfig_path = "${path.module}/oslo/talosconfig"
}

provider "talosupgrade" {
  alias            = "bergen"
  talosconfig_path = "${path.module}/bergen/talosconfig"
}

resource "talosupgrade_cluster" "oslo" {
  provider      = talosupgrade.oslo
  talos_version = "1.13.4"
}

resource "talosupgrade_cluster" "bergen" {
  provider      = talosupgrade.bergen
  talos_version = "1.13.4"
}
