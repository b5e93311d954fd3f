terraform {
  backend "kubernetes" {
    in_cluster_config = true
    namespace         = "upgrades"
    secret_suffix     = "prod"
  }
}
