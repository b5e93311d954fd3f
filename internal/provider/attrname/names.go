// SPDX-License-Identifier: MPL-2.0

// Package attrname has the names of attributes, as configurations and states spell them, and that of the provider.
package attrname

// TypeName is the prefix of the names of all resources, data sources and actions.
const TypeName = "talosupgrade"

// The attributes of the provider block.
const (
	Talosconfig         = "talosconfig"
	TalosconfigPath     = "talosconfig_path"
	Endpoints           = "endpoints"
	ClientConfiguration = "client_configuration"
	Context             = "context"
	Kubeconfig          = "kubeconfig"
	KubeconfigPath      = "kubeconfig_path"
	Management          = "management"
	CredentialsFrom     = "credentials_from"
)

// The attributes about releases.
const (
	ReleaseSource      = "release_source"
	ImageFactoryURL    = "image_factory_url"
	IncludePreReleases = "include_prereleases"
	Talos              = "talos"
	Kubernetes         = "kubernetes"
	TalosVersions      = "talos_versions"
	KubernetesVersions = "kubernetes_versions"
	Table              = "table"
	TableSHA256        = "table_sha256"
)

// The attributes of the resource.
const (
	TalosVersion         = "talos_version"
	KubernetesVersion    = "kubernetes_version"
	Order                = "order"
	RebootMode           = "reboot_mode"
	NodeTimeout          = "node_timeout"
	Drain                = "drain"
	InstallerImage       = "installer_image"
	AllowIntermediate    = "allow_intermediate_versions"
	IntermediateVersions = "intermediate_versions"
	AllowUnknown         = "allow_unknown_versions"
	MaxUnavailable       = "max_unavailable"
	ParallelPulls        = "parallel_pulls"
	Pools                = "pools"
	Canary               = "canary"
	CanarySelector       = "canary_selector"
	Settle               = "settle"
	NodeOverrides        = "node_overrides"
	SelectorOverrides    = "selector_overrides"
	Hold                 = "hold"
	Retry                = "retry"
	RetryBootID          = "retry_boot_id"
	Timeouts             = "timeouts"
	ID                   = "id"
	Status               = "status"
	Nodes                = "nodes"
	InstallImage         = "install_image"
	// Snapshot is the last snapshot of etcd.
	Snapshot = "snapshot"
)

// The attributes within kubernetes.
const (
	Images              = "images"
	UnavailableKubelets = "max_unavailable_kubelets"
	Manifests           = "manifests"
	Sync                = "sync"
	Prune               = "prune"
	Timeout             = "timeout"
	Force               = "force"
	Exclude             = "exclude"
	Kubelet             = "kubelet"
	APIServer           = "kube_apiserver"
	ControllerManager   = "kube_controller_manager"
	Scheduler           = "kube_scheduler"
	Proxy               = "kube_proxy"
	Installer           = "installer"
)

// The attributes that can delay an upgrade, and of those within them.
const (
	Preflight         = "preflight"
	Skip              = "skip"
	EtcdSnapshot      = "etcd_snapshot"
	Directory         = "directory"
	Gates             = "gates"
	Preset            = "preset"
	APIVersion        = "api_version"
	Kind              = "kind"
	Namespace         = "namespace"
	Name              = "name"
	Selector          = "selector"
	Expr              = "expr"
	MaintenanceWindow = "maintenance_window"
	Cron              = "cron"
	Duration          = "duration"
	TimeZone          = "time_zone"
	SyncInstallImage  = "sync_install_image"
)

// The attributes that say what happens if something fails or is suspended, besides [Retry].
const (
	OnFailure = "on_failure"
	OnSuspend = "on_suspend"
	// WaitForVolumes is part of a drain.
	WaitForVolumes = "wait_for_volumes"
	Attempts       = "attempts"
	Backoff        = "backoff"
)

// The attributes that say where progress is published, and who upgrades the nodes.
const (
	PublishTo = "publish_to"
	Mode      = "mode"
	// ReportPath is the path of a run's report.
	ReportPath = "report_path"
)

// The attributes of talosupgrade_preflight.
const (
	Passed   = "passed"
	Summary  = "summary"
	Checks   = "checks"
	Hops     = "hops"
	Steps    = "steps"
	Held     = "held"
	Estimate = "estimate"
	Read     = "read"
)

// The attributes of the list resource and of the actions.
const (
	Contexts = "contexts"
	Node     = "node"
	Reason   = "reason"
)
