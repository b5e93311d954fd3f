variable "talos_client" {
  description = "Client certificate of the Talos API: ca, crt and key of a context in a talosconfig."
  sensitive   = true

  type = object({
    ca  = string
    crt = string
    key = string
  })
}

variable "talosconfig" {
  description = "Talosconfig of the cluster."
  type        = string
  sensitive   = true
}

variable "kubeconfig" {
  description = "Kubeconfig of the same cluster."
  type        = string
  sensitive   = true
}

variable "management_kubeconfig" {
  description = "Kubeconfig of the management cluster, from the secret store of the pipeline."
  type        = string
  sensitive   = true
}

# One context of a file, and a kubeconfig beside it: an os:reader cannot ask the Talos API for one.
provider "talosupgrade" {
  alias            = "reader"
  talosconfig_path = "~/.talos/config"
  context          = "prod-reader"
  kubeconfig_path  = "~/.kube/prod-reader"
}

# Everything from variables, and nothing from files.
provider "talosupgrade" {
  alias     = "pipeline"
  endpoints = ["10.5.0.2", "10.5.0.3", "10.5.0.4"]

  client_configuration = {
    ca_certificate     = var.talos_client.ca
    client_certificate = var.talos_client.crt
    client_key         = var.talos_client.key
  }

  management = {
    kubeconfig = var.management_kubeconfig
  }

  # Only what was approved counts as available.
  release_source = {
    talos_versions      = ["1.12.12", "1.13.4"]
    kubernetes_versions = ["1.34.8", "1.35.2"]
  }
}

# Both as text, such as talos_cluster_kubeconfig.this.kubeconfig_raw of siderolabs/talos for the latter.
provider "talosupgrade" {
  alias       = "texts"
  talosconfig = var.talosconfig
  kubeconfig  = var.kubeconfig
}
