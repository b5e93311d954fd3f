# The cluster is one that Vitistack made: its credentials are in the management cluster, beside its KubernetesCluster.
provider "talosupgrade" {
  alias = "managed"

  management = {
    kubeconfig_path = "~/.kube/management"
    context         = "admin@management"
  }

  credentials_from = {
    namespace = "tenant-a"
    name      = "prod"
  }
}
