provider "talosupgrade" {
  talosconfig_path = "${path.module}/talosconfig"

  # A file of your own, such as "${path.module}/releases.txt", needs no SHA-256.
  release_source = {
    table        = "https://platform.example.com/talos/releases.txt"
    table_sha256 = "0b1c2f0a6e5d4c3b2a19080706050403f2e1d0c9b8a79685746352413f2e1d0c"
  }
}
