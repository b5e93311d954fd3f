resource "talosupgrade_cluster" "stateful" {
  talos_version = "1.13.4"

  gates = [
    # Every volume is attached and healthy, or detached and not faulted. The timeout does not
    # run while nodes are out of service because of this run.
    {
      preset  = "longhorn"
      timeout = "45m"
    },
    # Every Cluster in the namespace has all instances ready and is healthy, or is hibernated.
    {
      preset    = "cloudnative-pg"
      namespace = "databases"
    },
    # The ingress controllers are all there. The expression has to hold for each object.
    {
      api_version = "apps/v1"
      kind        = "Deployment"
      namespace   = "ingress"
      selector    = "app.kubernetes.io/name=ingress-nginx"
      expr        = "object.status.?readyReplicas.orValue(0) == object.spec.replicas"
    },
    # A switch for people: kubectl -n operations create configmap upgrades --from-literal=allowed=yes
    {
      api_version = "v1"
      kind        = "ConfigMap"
      namespace   = "operations"
      name        = "upgrades"
      expr        = "object.data.allowed == 'yes'"
      timeout     = "2h"
    },
  ]
}
