# An operator whose objects say what is to run cannot be held, so it can only be asked.
resource "talosupgrade_cluster" "edge" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  mode = "delegate"

  publish_to = {
    kind      = "TalosControlPlane"
    namespace = "clusters"
    name      = "edge"
  }
}
