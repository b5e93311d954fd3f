# Talos first, then Kubernetes, in one apply.
resource "talosupgrade_cluster" "both" {
  talos_version      = "1.13.4"
  kubernetes_version = "1.35.2"

  kubernetes = {
    # Everything comes from a mirror.
    images = {
      kubelet                 = "registry.example.com/siderolabs/kubelet"
      kube_apiserver          = "registry.example.com/k8s/kube-apiserver"
      kube_controller_manager = "registry.example.com/k8s/kube-controller-manager"
      kube_scheduler          = "registry.example.com/k8s/kube-scheduler"
      kube_proxy              = "registry.example.com/k8s/kube-proxy"
    }

    max_unavailable_kubelets = "25%"

    manifests = {
      prune   = true
      timeout = "10m"

      # A Job among the inline manifests, whose pod template Kubernetes lets nobody change.
      exclude = [{ kind = "Job", namespace = "storage", name = "prepare-disks" }]
    }
  }
}
