terraform {
  # The state is a Secret beside the Job, and its lock is a Lease.
  backend "kubernetes" {
    in_cluster_config = true
    namespace         = "upgrades"
    secret_suffix     = "prod"
  }
}
