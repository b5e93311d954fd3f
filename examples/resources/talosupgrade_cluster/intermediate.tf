# From Talos 1.11 to 1.13 in one apply, by way of the newest 1.12 that this version of the provider knows.
resource "talosupgrade_cluster" "behind" {
  talos_version               = "1.13.4"
  allow_intermediate_versions = true
}

# The same by way of exactly this release.
resource "talosupgrade_cluster" "behind_exactly" {
  talos_version               = "1.13.4"
  allow_intermediate_versions = true
  intermediate_versions       = ["1.12.8"]
}
