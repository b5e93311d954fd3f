// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Target is what a cluster should run.
type Target struct {
	// Talos is zero if that product is not managed.
	Talos version.Version
	// Kubernetes is zero if that product is not managed.
	Kubernetes version.Version
	// InstallerImage, whose tag is ignored, replaces each node's own repository.
	InstallerImage string
	// ImageFactory is the host of the Image Factory, with port and path if it has them, that serves images for
	// which no repository is configured; empty means the public one.
	ImageFactory string
}

// Order is whether control planes or workers are upgraded first.
type Order string

const (
	// WorkersFirst upgrades control planes after all workers.
	WorkersFirst Order = "workers-first"
	// ControlPlanesFirst upgrades workers after all control planes.
	ControlPlanesFirst Order = "control-planes-first"
)

// DrainFallback is what happens to pods that could not be evicted in time.
type DrainFallback string

const (
	// DrainAbort stops the run and takes the cordon back.
	DrainAbort DrainFallback = "abort"
	// DrainDelete deletes the pods without regard to their budgets.
	DrainDelete DrainFallback = "delete"
)

// VolumeWait is what a drain does about volumes that are still attached when the pods are
// gone, spelled as in the configuration.
type VolumeWait string

const (
	// AwaitVolumes waits for them for a limited time, and then continues with a warning.
	AwaitVolumes VolumeWait = "true"
	// RequireVolumes waits as long as AwaitVolumes, and then stops the run and takes the cordon back.
	RequireVolumes VolumeWait = "required"
	// IgnoreVolumes does not check them.
	IgnoreVolumes VolumeWait = "false"
)

// DrainPolicy is how workloads leave a node.
type DrainPolicy struct {
	Enabled bool
	// Timeout is how long evictions are tried.
	Timeout   time.Duration
	OnTimeout DrainFallback
	Volumes   VolumeWait
}

// OnFailure is what happens to a node that runs the new system but does not become healthy.
type OnFailure string

const (
	// StopOnFailure leaves it as it is, for a person to look at.
	StopOnFailure OnFailure = "stop"
	// RollBackOnFailure sends it back to its old system, once, if that is safe.
	RollBackOnFailure OnFailure = "rollback"
)

// OnSuspend is what a run does while the upgrades of the cluster are suspended.
type OnSuspend string

const (
	// WaitOnSuspend starts nothing until they are resumed.
	WaitOnSuspend OnSuspend = "wait"
	// StopOnSuspend finishes the steps that have begun and ends the run.
	StopOnSuspend OnSuspend = "stop"
)

// Repeat is how often and how soon an action that is safe to repeat is tried again.
type Repeat struct {
	// Attempts includes the first one.
	Attempts int
	// Backoff is the pause before the second attempt; each further one is twice
	// as long as the one before it.
	Backoff time.Duration
}

// Policy is how the target is to be reached.
type Policy struct {
	Order      Order
	RebootMode RebootMode
	Drain      DrainPolicy
	// NodeTimeout bounds one node, from cordon to uncordon.
	NodeTimeout time.Duration
	// Retry is, by node, the boot ID after a fallback for which the same image may be tried again.
	Retry map[string]string
	// Repeat bounds what is tried again within a run: pulls, and installs that a reboot showed to have had no
	// effect.
	Repeat Repeat
	// OnFailure is what happens to a node whose new system does not become healthy.
	OnFailure OnFailure
	// OnSuspend is what a run does while the upgrades are suspended.
	OnSuspend OnSuspend
	// MaxUnavailable bounds the workers that are unavailable at a time, including those that are unavailable for
	// other reasons than this run.
	MaxUnavailable Share
	// ParallelPulls is how many nodes pull images at a time; 0 lets the run derive it from MaxUnavailable.
	ParallelPulls int
	// Pools bound parts of the workers further, sorted by name.
	Pools []Pool
	// Canary names the workers that are upgraded before everything else.
	Canary []string
	// CanarySelector makes more workers canaries; nil makes none.
	CanarySelector Selector
	// Settle is how long a node must have stayed healthy before the next one is disturbed.
	Settle time.Duration
	// Hold names the nodes that are left alone.
	Hold map[string]bool
	// Images are, by node, installer images without tag that replace [Target.InstallerImage].
	Images map[string]string
	// RebootModes are, by node, how it restarts, in place of RebootMode.
	RebootModes map[string]RebootMode
	// SelectorOverrides are exceptions for nodes chosen by selectors.
	SelectorOverrides []SelectorOverride
	// Selected is what the selectors chose in the last observation; plan.Select sets it.
	Selected Selection
	// AllowIntermediate upgrades through the minor versions between the running version and the target instead of
	// refusing.
	AllowIntermediate bool
	// Intermediate are the versions of Talos and Kubernetes to upgrade through, instead of the newest known patch
	// of their minor versions.
	Intermediate []version.Version
	// AllowUnknown accepts versions that are newer than the support matrix.
	AllowUnknown bool
	// Releases are the known releases and the known defects of some of them; nil means the built-in table.
	Releases *compat.Table
	// Kubernetes is how Kubernetes reaches its target.
	Kubernetes KubernetesPolicy
	// SkipChecks names the checks whose findings are only warnings; it has no effect on firm checks.
	SkipChecks map[string]bool
	// OwnBootID is the boot ID of the kernel that this process runs on, which identifies its own node; empty if
	// it is unknown.
	OwnBootID string
	// Run is the ID of the run that plans again after it has begun; empty before.
	Run string
	// SyncInstallImage sets machine.install.image in the machine configuration to the image of a confirmed
	// upgrade.
	SyncInstallImage bool
}

// Holds reports whether the node is to be left alone, by its name or by its labels.
func (p Policy) Holds(node string) bool {
	_, selected := p.Selected.Held[node]

	return selected || p.Hold[node]
}

// Canaries returns the workers that are upgraded before everything else: those of [Policy.Canary], in that order,
// then those that the selector chose.
func (p Policy) Canaries() []string {
	chosen := slices.DeleteFunc(slices.Clone(p.Selected.Canaries), func(name string) bool { return slices.Contains(p.Canary, name) })

	return slices.Concat(p.Canary, chosen)
}

// HasCanaries reports whether there are canaries.
func (p Policy) HasCanaries() bool { return len(p.Canaries()) > 0 }

// Image returns the installer image without tag that the policy sets for the node; empty if it sets none. An
// image set by name takes precedence over one set by labels.
func (p Policy) Image(node string) string {
	if own := p.Images[node]; own != "" {
		return own
	}

	if index, found := p.Selected.Overrides[node]; found {
		return p.SelectorOverrides[index].Image
	}

	return ""
}

// RebootModeOf returns how the node restarts. A mode set by name takes precedence over one set by labels.
func (p Policy) RebootModeOf(node string) RebootMode {
	if own := p.RebootModes[node]; own != "" {
		return own
	}

	if index, found := p.Selected.RebootModes[node]; found {
		return p.SelectorOverrides[index].RebootMode
	}

	return p.RebootMode
}

// Defaults of [Policy], as the documentation states them.
const (
	DefaultNodeTimeout  = 30 * time.Minute
	DefaultDrainTimeout = 5 * time.Minute
	DefaultAttempts     = 2
	DefaultBackoff      = 30 * time.Second
	// PullTimeout bounds the pull of one image on one node. Talos 1.13 retries
	// silently for up to 20 minutes by itself.
	PullTimeout = 25 * time.Minute
)

// DefaultPolicy returns the policy of a configuration without any settings.
func DefaultPolicy() Policy {
	return Policy{
		Order:       WorkersFirst,
		RebootMode:  RebootDefault,
		Drain:       DrainPolicy{Enabled: true, Timeout: DefaultDrainTimeout, OnTimeout: DrainAbort, Volumes: AwaitVolumes},
		NodeTimeout: DefaultNodeTimeout,
		Repeat:      Repeat{Attempts: DefaultAttempts, Backoff: DefaultBackoff},
		OnFailure:   StopOnFailure,
		OnSuspend:   WaitOnSuspend,

		MaxUnavailable: OneAtATime(),
		Kubernetes: KubernetesPolicy{
			MaxUnavailableKubelets: OneAtATime(),
			Manifests:              ManifestPolicy{Sync: true, Timeout: DefaultManifestTimeout},
		},
	}
}
