terraform {
  required_providers {
    talosupgrade = {
      source = "vitistack/talosupgrade"
    }
  }
}

variable "talosconfig" {
  description = "Path of the talosconfig of the cluster to upgrade."
  type        = string
}

variable "talos_version" {
  description = "Talos version that every node is to run."
  type        = string
  default     = "1.13.4"
}

variable "kubernetes_version" {
  description = "Kubernetes version that every node is to run; null leaves Kubernetes alone."
  type        = string
  default     = null
}

variable "report_path" {
  description = "File for a picture of the run; null draws none."
  type        = string
  default     = null
}

variable "retry_boot_ids" {
  description = "Boot IDs from the errors of nodes that fell back to their old system, by node: the same image may be tried there again."
  type        = map(string)
  default     = {}
}

# The kubeconfig is asked from the Talos API.
provider "talosupgrade" {
  talosconfig_path = var.talosconfig
}

resource "talosupgrade_cluster" "demo" {
  talos_version      = var.talos_version
  kubernetes_version = var.kubernetes_version
  report_path        = var.report_path

  node_overrides = { for node, id in var.retry_boot_ids : node => { retry_boot_id = id } }
}

output "kubelet_versions" {
  description = "What the kubelet of each node is."
  value       = { for name, node in talosupgrade_cluster.demo.nodes : name => node.component_versions.kubelet }
}

output "talos_versions" {
  description = "What each node runs."
  value       = { for name, node in talosupgrade_cluster.demo.nodes : name => node.talos_version }
}
