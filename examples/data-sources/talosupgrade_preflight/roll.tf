locals {
  roll = {
    talos_version      = "1.13.4"
    kubernetes_version = "1.35.2"
    canary             = ["worker-0"]
  }
}

data "talosupgrade_preflight" "roll" {
  talos_version      = local.roll.talos_version
  kubernetes_version = local.roll.kubernetes_version
  canary             = local.roll.canary
}

resource "talosupgrade_cluster" "prod" {
  talos_version      = local.roll.talos_version
  kubernetes_version = local.roll.kubernetes_version
  canary             = local.roll.canary
}

output "roll" {
  value = {
    hops = [
      for hop in data.talosupgrade_preflight.roll.hops :
      "${hop.product} ${hop.from} -> ${hop.to}${hop.release_notes == null ? "" : " (${hop.release_notes})"}"
    ]
    reboots = [
      for step in data.talosupgrade_preflight.roll.steps :
      "hop ${step.hop + 1}: ${step.node} (${step.role}) ${step.from} -> ${step.to} with ${step.image}, ${step.estimate} s" if step.component == null
    ]
    canaries   = distinct([for step in data.talosupgrade_preflight.roll.steps : step.node if step.canary])
    pools      = { for step in data.talosupgrade_preflight.roll.steps : step.pool => step.node... if step.pool != null }
    unfinished = [for step in data.talosupgrade_preflight.roll.steps : step.node if step.unfinished]
    held       = data.talosupgrade_preflight.roll.held
    minutes    = ceil(data.talosupgrade_preflight.roll.estimate / 60)
  }
}

check "fits_into_the_night" {
  assert {
    condition     = data.talosupgrade_preflight.roll.estimate <= 8 * 3600
    error_message = "The roll takes about ${ceil(data.talosupgrade_preflight.roll.estimate / 3600)} hours."
  }
}
