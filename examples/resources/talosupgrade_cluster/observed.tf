resource "talosupgrade_cluster" "seen" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  etcd_snapshot = {
    directory = "/var/backups/etcd"
  }
}

# One line about the cluster: "Ready: Talos 1.13.4, Kubernetes 1.35.2."
output "phase" {
  value = "${talosupgrade_cluster.seen.status.phase}: ${talosupgrade_cluster.seen.status.message}"
}

# How each half stands, and what the slowest node runs and what the fastest.
output "halves" {
  value = {
    talos      = "${talosupgrade_cluster.seen.status.talos.status}: ${talosupgrade_cluster.seen.status.talos.lowest} to ${talosupgrade_cluster.seen.status.talos.highest}"
    kubernetes = "${talosupgrade_cluster.seen.status.kubernetes.status}: ${talosupgrade_cluster.seen.status.kubernetes.lowest} to ${talosupgrade_cluster.seen.status.kubernetes.highest}"
  }
}

# Which node has which image, and which version of each component.
output "nodes" {
  value = {
    for name, node in talosupgrade_cluster.seen.nodes : name => {
      role      = node.role
      address   = node.address
      platform  = node.platform
      talos     = node.talos_version
      schematic = node.schematic
      image     = node.install_image

      kubelet            = node.component_versions.kubelet
      api_server         = node.component_versions.kube_apiserver
      controller_manager = node.component_versions.kube_controller_manager
      scheduler          = node.component_versions.kube_scheduler
      proxy              = node.component_versions.kube_proxy
    }
  }
}

# Where the snapshot is, for what keeps it from here on. Null when there was none.
output "snapshot_to_keep" {
  value = talosupgrade_cluster.seen.snapshot == null ? null : {
    cluster = talosupgrade_cluster.seen.id
    file    = talosupgrade_cluster.seen.snapshot.path
    sha256  = talosupgrade_cluster.seen.snapshot.sha256
    bytes   = talosupgrade_cluster.seen.snapshot.size
    taken   = talosupgrade_cluster.seen.snapshot.taken
    before  = "Talos ${coalesce(talosupgrade_cluster.seen.snapshot.talos_version, "-")}, Kubernetes ${coalesce(talosupgrade_cluster.seen.snapshot.kubernetes_version, "-")}"
  }
}
