# From Talos 1.11 to 1.13 in one apply.
resource "talosupgrade_cluster" "behind" {
  talos_version               = "1.13.4"
  allow_intermediate_versions = true

  # Unset: the newest 1.12 that this version of the provider knows.
  intermediate_versions = ["1.12.8"]
}
