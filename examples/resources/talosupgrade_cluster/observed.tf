resource "talosupgrade_cluster" "seen" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  etcd_snapshot = {
    directory = "/var/backups/etcd"
  }
}

# "Ready: Talos 1.13.4, Kubernetes 1.35.2."
output "phase" {
  value = "${talosupgrade_cluster.seen.status.phase}: ${talosupgrade_cluster.seen.status.message}"
}

output "halves" {
  value = [
    for half in [talosupgrade_cluster.seen.status.talos, talosupgrade_cluster.seen.status.kubernetes] :
    "${half.status}: ${half.lowest} to ${half.highest}"
  ]
}

output "nodes" {
  value = {
    for name, node in talosupgrade_cluster.seen.nodes : name => {
      machine = [node.role, node.address, node.platform]
      talos   = [node.talos_version, node.schematic, node.install_image]
      kubernetes = [
        node.component_versions.kube_apiserver, node.component_versions.kube_controller_manager,
        node.component_versions.kube_scheduler, node.component_versions.kube_proxy, node.component_versions.kubelet,
      ]
    }
  }
}

output "snapshot" {
  value = talosupgrade_cluster.seen.snapshot == null ? null : {
    cluster = talosupgrade_cluster.seen.id
    file    = talosupgrade_cluster.seen.snapshot.path
    sha256  = talosupgrade_cluster.seen.snapshot.sha256
    bytes   = talosupgrade_cluster.seen.snapshot.size
    taken   = talosupgrade_cluster.seen.snapshot.taken
  }
}
