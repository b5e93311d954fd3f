# The image with which worker-2 did not come up may be tried once more, now that its firmware is up to date.
resource "talosupgrade_cluster" "prod" {
  talos_version = "1.13.4"

  node_overrides = {
    "worker-2" = { retry_boot_id = "5b1e8e4f-27b0-4a0c-9f6e-0d6d6f1c3f57" }
  }
}
