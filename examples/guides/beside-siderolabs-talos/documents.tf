# In place of kubelet_patches. KubeAPIServerConfig, KubeControllerManagerConfig, KubeSchedulerConfig and KubeProxyConfig
# replace control_plane_patches in the same way.
locals {
  kubelet_documents = {
    for name, images in local.images : name => images.kubelet == null ? [] : [yamlencode({
      apiVersion = "v1alpha1"
      kind       = "KubeletConfig"
      image      = images.kubelet
    })]
  }
}
