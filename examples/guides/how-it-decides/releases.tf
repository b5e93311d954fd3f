provider "talosupgrade" {
  talosconfig_path = "${path.module}/talosconfig"

  release_source = {
    table = "${path.module}/releases.txt"
  }
}

# The same for many clusters: an address, and what is expected there.
provider "talosupgrade" {
  alias            = "fleet"
  talosconfig_path = "${path.module}/talosconfig"

  release_source = {
    table        = "https://platform.example.com/talos/releases.txt"
    table_sha256 = "0b1c2f0a6e5d4c3b2a19080706050403f2e1d0c9b8a79685746352413f2e1d0c"
  }
}
