# false for the first apply, which makes the cluster.
variable "running" {
  type    = bool
  default = true
}

# It depends on nothing, so that it is read before anything is upgraded.
data "talosupgrade_current_versions" "this" {
  count = var.running ? 1 : 0
}

locals {
  # By Kubernetes node name.
  nodes = {
    cp-0     = { address = "10.5.0.2", role = "controlplane" }
    worker-0 = { address = "10.5.0.5", role = "worker" }
  }

  current = one(data.talosupgrade_current_versions.this)

  # Each node keeps its images; a new node gets those that all others agree on; null leaves the generated one.
  images = {
    for name, node in local.nodes : name => {
      for component in ["kubelet", "kube_apiserver", "kube_controller_manager", "kube_scheduler", "kube_proxy"] :
      component => try(coalesce(try(local.current.nodes[name].images[component], null), local.current.images[component]), null)
    }
  }

  kubelet_patches = {
    for name, images in local.images : name => images.kubelet == null ? [] : [yamlencode({
      machine = { kubelet = { image = images.kubelet } }
    })]
  }

  control_plane_patches = {
    for name, images in local.images : name => local.nodes[name].role != "controlplane" ? [] : [yamlencode({
      cluster = {
        for key, component in {
          apiServer = "kube_apiserver", controllerManager = "kube_controller_manager", scheduler = "kube_scheduler", proxy = "kube_proxy"
        } : key => { image = images[component] } if images[component] != null
      }
    })]
  }

  image_patches = { for name, node in local.nodes : name => concat(local.kubelet_patches[name], local.control_plane_patches[name]) }
}
