// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"strings"
)

// MachineConfig is a machine's configuration as it was once written by hand:
// YAML with comments, and with component images only where the cluster pins
// them. Its keys and tokens are made up.
func (w *World) MachineConfig(nameOrAddress string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n, err := w.find(nameOrAddress)
	if err != nil {
		return nil, err
	}

	var text strings.Builder

	err = w.configuration.Execute(&text, map[string]any{
		"Type": n.role, "ControlPlane": n.role == ControlPlane, "Install": n.install,
		"Pinned": n.pinned, "ClusterName": w.options.ClusterName, "ClusterID": w.clusterID,
		"Endpoint": w.nodes[0].address,
		"Secret":   drawToken(w.options.Seed, "secret"),
	})
	if err != nil {
		return nil, fmt.Errorf("machine configuration: %w", err)
	}

	return []byte(text.String()), nil
}

const machineConfig = `version: v1alpha1 # Indicates the schema used to decode the contents.
debug: false
persist: true
machine:
  type: {{ .Type }} # Defines the role of the machine within the cluster.
  token: abcdef.0123456789abcdef
  certSANs: []
  kubelet:
{{- with .Pinned.Kubelet }}
    image: ghcr.io/siderolabs/kubelet:v{{ . }} # Changed together with the control plane.
{{- end }}
    defaultRuntimeSeccompProfileEnabled: true
    disableManifestsDirectory: true
  install:
    disk: /dev/sda # The disk used for installations.
    image: {{ .Install }}
    wipe: false
  features:
    rbac: true
    # Set by the platform team.
    kubePrism:
      enabled: true
      port: 7445
cluster:
  id: {{ .ClusterID }}
  secret: {{ .Secret }}
  controlPlane:
    endpoint: https://{{ .Endpoint }}:6443
  clusterName: {{ .ClusterName }}
  network:
    dnsDomain: cluster.local
    podSubnets:
      - 10.244.0.0/16
    serviceSubnets:
      - 10.96.0.0/12
  token: abcdef.0123456789abcdef
{{- if .ControlPlane }}
  apiServer:
{{- with .Pinned.APIServer }}
    image: registry.k8s.io/kube-apiserver:v{{ . }}
{{- end }}
    certSANs:
      - {{ .Endpoint }}
  controllerManager:
{{- with .Pinned.ControllerManager }}
    image: registry.k8s.io/kube-controller-manager:v{{ . }}
{{- else }} {}
{{- end }}
  proxy:
{{- with .Pinned.Proxy }}
    image: registry.k8s.io/kube-proxy:v{{ . }}
{{- else }} {}
{{- end }}
  scheduler:
{{- with .Pinned.Scheduler }}
    image: registry.k8s.io/kube-scheduler:v{{ . }}
{{- else }} {}
{{- end }}
{{- end }}
  discovery:
    enabled: true
`
