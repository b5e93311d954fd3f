# A lab with small disks, in which a deprecated API is still in use and known. What these checks find stays a warning.
resource "talosupgrade_cluster" "lab" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  preflight = {
    skip = ["disk-space", "kubernetes-removals"]
  }
}
