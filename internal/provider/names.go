// SPDX-License-Identifier: MPL-2.0

package provider

// typeName is the prefix of the names of all resources, data sources and actions.
const typeName = "talosupgrade"

// The attributes of the provider block.
const (
	attrTalosconfig         = "talosconfig"
	attrTalosconfigPath     = "talosconfig_path"
	attrEndpoints           = "endpoints"
	attrClientConfiguration = "client_configuration"
	attrContext             = "context"
	attrKubeconfig          = "kubeconfig"
	attrKubeconfigPath      = "kubeconfig_path"
	attrManagement          = "management"
	attrCredentialsFrom     = "credentials_from"
)

// The attributes about releases.
const (
	attrReleaseSource      = "release_source"
	attrImageFactoryURL    = "image_factory_url"
	attrIncludePreReleases = "include_prereleases"
	attrTalos              = "talos"
	attrKubernetes         = "kubernetes"
	attrTalosVersions      = "talos_versions"
	attrKubernetesVersions = "kubernetes_versions"
	attrTable              = "table"
	attrTableSHA256        = "table_sha256"
)

// The attributes of the resource.
const (
	attrTalosVersion         = "talos_version"
	attrKubernetesVersion    = "kubernetes_version"
	attrOrder                = "order"
	attrRebootMode           = "reboot_mode"
	attrNodeTimeout          = "node_timeout"
	attrDrain                = "drain"
	attrInstallerImage       = "installer_image"
	attrAllowIntermediate    = "allow_intermediate_versions"
	attrIntermediateVersions = "intermediate_versions"
	attrAllowUnknown         = "allow_unknown_versions"
	attrMaxUnavailable       = "max_unavailable"
	attrParallelPulls        = "parallel_pulls"
	attrPools                = "pools"
	attrCanary               = "canary"
	attrCanarySelector       = "canary_selector"
	attrSettle               = "settle"
	attrNodeOverrides        = "node_overrides"
	attrSelectorOverrides    = "selector_overrides"
	attrHold                 = "hold"
	attrRetry                = "retry"
	attrRetryBootID          = "retry_boot_id"
	attrTimeouts             = "timeouts"
	attrID                   = "id"
	attrStatus               = "status"
	attrNodes                = "nodes"
	attrInstallImage         = "install_image"
	// attrSnapshot is the last snapshot of etcd.
	attrSnapshot = "snapshot"
)

// The attributes within kubernetes.
const (
	attrImages              = "images"
	attrUnavailableKubelets = "max_unavailable_kubelets"
	attrManifests           = "manifests"
	attrSync                = "sync"
	attrPrune               = "prune"
	attrTimeout             = "timeout"
	attrForce               = "force"
	attrExclude             = "exclude"
	attrKubelet             = "kubelet"
	attrAPIServer           = "kube_apiserver"
	attrControllerManager   = "kube_controller_manager"
	attrScheduler           = "kube_scheduler"
	attrProxy               = "kube_proxy"
	attrInstaller           = "installer"
)

// The attributes that can delay an upgrade, and of those within them.
const (
	attrPreflight         = "preflight"
	attrSkip              = "skip"
	attrEtcdSnapshot      = "etcd_snapshot"
	attrDirectory         = "directory"
	attrGates             = "gates"
	attrPreset            = "preset"
	attrAPIVersion        = "api_version"
	attrKind              = "kind"
	attrNamespace         = "namespace"
	attrName              = "name"
	attrSelector          = "selector"
	attrExpr              = "expr"
	attrMaintenanceWindow = "maintenance_window"
	attrCron              = "cron"
	attrDuration          = "duration"
	attrTimeZone          = "time_zone"
	attrSyncInstallImage  = "sync_install_image"
)

// The attributes that say what happens if something fails or is suspended, besides [attrRetry].
const (
	attrOnFailure = "on_failure"
	attrOnSuspend = "on_suspend"
	// attrWaitForVolumes is part of a drain.
	attrWaitForVolumes = "wait_for_volumes"
	attrAttempts       = "attempts"
	attrBackoff        = "backoff"
)

// The attributes that say where progress is published, and who upgrades the nodes.
const (
	attrPublishTo = "publish_to"
	attrMode      = "mode"
	// attrReportPath is the path of a run's report.
	attrReportPath = "report_path"
)

// The attributes of talosupgrade_preflight.
const (
	attrPassed   = "passed"
	attrSummary  = "summary"
	attrChecks   = "checks"
	attrHops     = "hops"
	attrSteps    = "steps"
	attrHeld     = "held"
	attrEstimate = "estimate"
	attrRead     = "read"
)

// The attributes of the list resource and of the actions.
const (
	attrContexts = "contexts"
	attrNode     = "node"
	attrReason   = "reason"
)
