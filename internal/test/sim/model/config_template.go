// SPDX-License-Identifier: MPL-2.0

package model

// machineConfig is a configuration in one document, as every version of Talos
// reads it.
const machineConfig = `version: v1alpha1 # Indicates the schema used to decode the contents.
debug: false
persist: true
machine:
  type: {{ .Type }} # Defines the role of the machine within the cluster.
  token: abcdef.0123456789abcdef
  certSANs: []
  kubelet:
{{- with index .Images "kubelet" }}
    image: {{ . }} # Changed together with the control plane.
{{- end }}
    defaultRuntimeSeccompProfileEnabled: true
    disableManifestsDirectory: true
{{- with and .ControlPlane .Disabled }}
  controlPlane:
{{- if index . "kube-controller-manager" }}
    controllerManager:
      disabled: true
{{- end }}
{{- if index . "kube-scheduler" }}
    scheduler:
      disabled: true
{{- end }}
{{- end }}
  install:
    disk: /dev/sda # The disk used for installations.
    image: {{ .Install }}
    wipe: false
{{- if .GrubUseUKICmdline }}
    grubUseUKICmdline: true
{{- end }}
` + machineCluster + `{{- if .ControlPlane }}
  apiServer:
{{- with index .Images "kube-apiserver" }}
    image: {{ . }}
{{- end }}
    certSANs:
      - {{ .Endpoint }}
  controllerManager:
{{- with index .Images "kube-controller-manager" }}
    image: {{ . }}
{{- else }} {}
{{- end }}
  proxy:
{{- if .ProxyDisabled }}
    disabled: true
{{- end }}
{{- with index .Images "kube-proxy" }}
    image: {{ . }}
{{- else }}{{ if not .ProxyDisabled }} {}{{ end }}
{{- end }}
  scheduler:
{{- with index .Images "kube-scheduler" }}
    image: {{ . }}
{{- else }} {}
{{- end }}
{{- with index .Images "coredns" }}
  coreDNS:
    image: {{ . }}
{{- end }}
{{- end }}
  discovery:
    enabled: true
`

// machineCluster is what both forms have in common.
const machineCluster = `  features:
    rbac: true
    # Set by the platform team.
    kubePrism:
      enabled: true
      port: 7445
cluster:
  id: {{ .ClusterID }}
  secret: {{ .Secret }}
  controlPlane:
    endpoint: https://{{ .APIServer }}
  clusterName: {{ .ClusterName }}
  network:
    dnsDomain: cluster.local
    podSubnets:
      - 10.244.0.0/16
    serviceSubnets:
      - 10.96.0.0/12
  token: abcdef.0123456789abcdef
`

// machineDocuments is a configuration as Talos generates it from 1.14 on: what
// remains of the one document, and a document for each component.
const machineDocuments = `version: v1alpha1 # Indicates the schema used to decode the contents.
debug: false
persist: true
machine:
  type: {{ .Type }} # Defines the role of the machine within the cluster.
  token: abcdef.0123456789abcdef
  certSANs: []
` + machineCluster + `  discovery:
    enabled: true
---
# The name comes from the inventory.
apiVersion: v1alpha1
kind: HostnameConfig
hostname: {{ .Name }}
---
apiVersion: v1alpha1
kind: UnattendedInstallConfig
installer:
  image: {{ .Install }}
provisioning:
  diskSelector:
    match: disk.dev_path == "/dev/sda" # The disk used for installations.
  wipe: false
---
apiVersion: v1alpha1
kind: KubeletConfig
{{- with index .Images "kubelet" }}
image: {{ . }} # Changed together with the control plane.
{{- end }}
defaultRuntimeSeccompProfileEnabled: true
{{- if .ControlPlane }}
---
# Served to everybody through the endpoint.
apiVersion: v1alpha1
kind: KubeAPIServerConfig
{{- with index .Images "kube-apiserver" }}
image: {{ . }}
{{- end }}
certExtraSANs:
  - {{ .Endpoint }}
---
apiVersion: v1alpha1
kind: KubeControllerManagerConfig
{{- if index .Disabled "kube-controller-manager" }}
enabled: false
{{- end }}
{{- with index .Images "kube-controller-manager" }}
image: {{ . }}
{{- end }}
---
apiVersion: v1alpha1
kind: KubeSchedulerConfig
{{- if index .Disabled "kube-scheduler" }}
enabled: false
{{- end }}
{{- with index .Images "kube-scheduler" }}
image: {{ . }}
{{- end }}
---
apiVersion: v1alpha1
kind: KubeProxyConfig
{{- if .ProxyDisabled }}
enabled: false
{{- end }}
{{- with index .Images "kube-proxy" }}
image: {{ . }}
{{- end }}
{{- with index .Images "coredns" }}
---
apiVersion: v1alpha1
kind: KubeCoreDNSConfig
image: {{ . }}
{{- end }}
{{- end }}
`
