# SPDX-License-Identifier: MPL-2.0

# What the documentation takes for granted of a cluster that siderolabs/talos makes.
resource "talos_machine_secrets" "this" {}

data "talos_client_configuration" "this" {
  cluster_name         = "prod"
  client_configuration = talos_machine_secrets.this.client_configuration
  endpoints            = ["10.5.0.2", "10.5.0.3", "10.5.0.4"]
}

data "talos_machine_configuration" "this" {
  for_each = toset(["controlplane", "worker"])

  cluster_name     = "prod"
  cluster_endpoint = "https://10.5.0.10:6443"
  machine_type     = each.key
  machine_secrets  = talos_machine_secrets.this.machine_secrets
  talos_version    = "v1.12.6"
}
