// SPDX-License-Identifier: MPL-2.0

package kube

// auditPolicy keeps what clients wrote, with the resulting object where the
// history needs it. A request is logged when it arrives as well, so that one
// whose answer is out but whose line is not can be waited for.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
omitManagedFields: true
rules:
# The marks by which the reader knows how far it has read.
- level: Metadata
  users: ["talossim"]
  nonResourceURLs: ["/version"]
# What the simulator and Kubernetes itself do.
- level: None
  users: ["talossim", "system:apiserver", "system:kube-controller-manager", "system:anonymous"]
- level: None
  verbs: ["get", "list", "watch"]
# Questions that are asked with a POST, and what does not end by itself.
- level: None
  resources:
  - group: authorization.k8s.io
  - group: authentication.k8s.io
  - group: ""
    resources: ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"]
- level: None
  nonResourceURLs: ["*"]
- level: RequestResponse
  resources:
  - group: ""
    resources: ["nodes", "nodes/status", "pods", "pods/status", "pods/eviction", "configmaps"]
  - group: coordination.k8s.io
    resources: ["leases"]
  - group: vitistack.io
  - group: talos.alperen.cloud
# Secrets among them: what is in them is nowhere in the log.
- level: Metadata
`
