locals {
  talos_version = "1.13.4"
  kubernetes    = provider::talosupgrade::kubernetes_versions(local.talos_version) # { min = "1.31", max = "1.36" }
}

output "support" {
  value = "Talos ${local.talos_version} runs Kubernetes ${local.kubernetes.min} to ${local.kubernetes.max}"
}
