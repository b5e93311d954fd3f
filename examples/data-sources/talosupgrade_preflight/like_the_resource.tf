# What the resource is given, given to both.
locals {
  upgrade = {
    talos_version      = "1.14.2"
    kubernetes_version = "1.36.1"

    allow_intermediate_versions = true
    intermediate_versions       = ["1.13.11"]
    allow_unknown_versions      = false

    canary          = ["worker-0"]
    max_unavailable = "25%"
    parallel_pulls  = 20
    installer_image = "registry.example.com/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
  }
}

data "talosupgrade_preflight" "prod" {
  # Another context of the talosconfig than the provider's.
  context = "prod"

  talos_version      = local.upgrade.talos_version
  kubernetes_version = local.upgrade.kubernetes_version

  allow_intermediate_versions = local.upgrade.allow_intermediate_versions
  intermediate_versions       = local.upgrade.intermediate_versions
  allow_unknown_versions      = local.upgrade.allow_unknown_versions

  canary          = local.upgrade.canary
  max_unavailable = local.upgrade.max_unavailable
  parallel_pulls  = local.upgrade.parallel_pulls
  installer_image = local.upgrade.installer_image

  order              = "workers-first"
  reboot_mode        = "default"
  node_timeout       = "45m"
  settle             = "2m"
  on_failure         = "stop"
  on_suspend         = "wait"
  sync_install_image = false

  retry = {
    attempts = 3
    backoff  = "1m"
  }

  mode = "direct"

  publish_to = {
    api_version = "v1"
    kind        = "ConfigMap"
    namespace   = "operations"
    name        = "prod-upgrade"
  }

  etcd_snapshot = {
    directory = "/var/backups/etcd"
  }

  drain = {
    enabled          = true
    timeout          = "10m"
    on_timeout       = "abort"
    wait_for_volumes = true
  }

  gates = [
    { preset = "longhorn", timeout = "45m" },
    {
      api_version = "apps/v1"
      kind        = "Deployment"
      namespace   = "ingress"
      selector    = "app.kubernetes.io/name=ingress-nginx"
      expr        = "object.status.?readyReplicas.orValue(0) == object.spec.replicas"
    },
    {
      api_version = "v1"
      kind        = "ConfigMap"
      namespace   = "operations"
      name        = "upgrades"
      expr        = "object.data.allowed == 'yes'"
    },
  ]

  kubernetes = {
    max_unavailable_kubelets = "25%"

    images = {
      kubelet                 = "registry.example.com/siderolabs/kubelet"
      kube_apiserver          = "registry.example.com/k8s/kube-apiserver"
      kube_controller_manager = "registry.example.com/k8s/kube-controller-manager"
      kube_scheduler          = "registry.example.com/k8s/kube-scheduler"
      kube_proxy              = "registry.example.com/k8s/kube-proxy"
    }

    manifests = {
      sync    = true
      prune   = true
      force   = false
      timeout = "10m"
      exclude = [{ kind = "Job", namespace = "storage", name = "prepare-disks" }]
    }
  }

  maintenance_window = {
    cron      = "0 22 * * 0-4"
    duration  = "6h"
    time_zone = "Europe/Oslo"
  }

  node_overrides = {
    "worker-2" = { reboot_mode = "powercycle" }
    "worker-3" = { hold = true }
    "worker-4" = { retry_boot_id = "5b1e8e4f-27b0-4a0c-9f6e-0d6d6f1c3f57" }
    "gpu-0" = {
      installer_image = "registry.example.com/metal-installer/c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
    }
  }

  canary_selector = "node-restriction.kubernetes.io/upgrade=first"

  selector_overrides = [
    { selector = "node-restriction.kubernetes.io/upgrade=hold", hold = true },
    { selector = "node-restriction.kubernetes.io/upgrade=first", reboot_mode = "powercycle" },
    {
      selector        = "node-restriction.kubernetes.io/pool=arm"
      installer_image = "registry.example.com/metal-installer/c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
    },
  ]

  pools = {
    storage = { selector = "node-restriction.kubernetes.io/pool=storage", max_unavailable = "1" }
  }

  preflight = {
    skip = ["disk-space"]
  }

  # A registry that does not answer takes its time.
  timeouts = {
    read = "2m"
  }
}

# One line for each check, whatever it found.
output "prod_checks" {
  value = [for row in data.talosupgrade_preflight.prod.checks : "${row.status} ${row.name}${row.node == null ? "" : " ${row.node}"}"]
}
