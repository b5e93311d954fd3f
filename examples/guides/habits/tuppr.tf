# The TalosUpgrade and the KubernetesUpgrade of tuppr, as one resource.
resource "talosupgrade_cluster" "cluster" {
  # spec.talos.version and spec.kubernetes.version
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  # spec.parallelism; control planes move one at a time all the same.
  max_unavailable = "2"

  # spec.policy.rebootMode and spec.policy.timeout
  reboot_mode  = "default"
  node_timeout = "30m"

  # spec.drain, with spec.drain.disableEviction
  drain = {
    enabled    = true
    on_timeout = "delete"
  }

  # spec.healthChecks. A check of tuppr sees the fields of the object by themselves, a gate sees them in "object".
  gates = [
    {
      api_version = "ceph.rook.io/v1"
      kind        = "CephCluster"
      namespace   = "rook-ceph"
      name        = "rook-ceph"
      expr        = "object.status.ceph.health in ['HEALTH_OK']"
      timeout     = "10m"
    },
  ]

  # spec.maintenance.windows[0]
  maintenance_window = {
    cron      = "0 2 * * 0"
    duration  = "4h"
    time_zone = "Europe/Paris"
  }

  # Annotations on nodes: tuppr.home-operations.com/factory-url and .../schematic
  node_overrides = {
    "gpu-0" = {
      installer_image = "factory.talos.dev/metal-installer/c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
    }
  }

  # spec.kubernetes.imageRepository
  kubernetes = {
    images = {
      kubelet                 = "registry.example.com/k8s/kubelet"
      kube_apiserver          = "registry.example.com/k8s/kube-apiserver"
      kube_controller_manager = "registry.example.com/k8s/kube-controller-manager"
      kube_scheduler          = "registry.example.com/k8s/kube-scheduler"
      kube_proxy              = "registry.example.com/k8s/kube-proxy"
    }
  }
}
