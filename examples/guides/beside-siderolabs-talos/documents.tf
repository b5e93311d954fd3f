# In place of kubelet_patches; the control plane has KubeAPIServerConfig, KubeControllerManagerConfig, KubeSchedulerConfig and KubeProxyConfig.
locals {
  kubelet_documents = {
    for name, images in local.images : name => images.kubelet == null ? [] : [yamlencode({
      apiVersion = "v1alpha1"
      kind       = "KubeletConfig"
      image      = images.kubelet
    })]
  }
}
