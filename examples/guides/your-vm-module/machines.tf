locals {
  talos_version = "1.13.4"
}

# Any resource that makes a machine: hcloud_server, proxmox_virtual_environment_vm, aws_instance.
resource "hcloud_server" "node" {
  for_each = toset(["cp-1", "cp-2", "cp-3", "worker-1"])

  name        = each.key
  server_type = "cx32"
  image       = "talos-${local.talos_version}"

  lifecycle {
    # The version moves in place, node by node.
    ignore_changes  = [image]
    prevent_destroy = true
  }
}

resource "talosupgrade_cluster" "this" {
  talos_version = local.talos_version
  depends_on    = [hcloud_server.node]
}
