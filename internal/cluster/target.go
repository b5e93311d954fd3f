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
	// Talos is zero when that product is not managed.
	Talos version.Version
	// Kubernetes is zero when that product is not managed.
	Kubernetes version.Version
	// InstallerImage, whose tag says nothing, replaces each node's own repository.
	InstallerImage string
	// ImageFactory is the host, with port and path if it has them, of the Image
	// Factory that serves images which no repository names; empty is the public
	// one.
	ImageFactory string
}

// Order is which half of the nodes moves first.
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
	// DrainDelete deletes the pods without asking their budgets.
	DrainDelete DrainFallback = "delete"
)

// VolumeWait is what a drain does about volumes that are still attached when the pods are
// gone, spelled as in the configuration.
type VolumeWait string

const (
	// AwaitVolumes waits for them for a while, and goes on with a warning.
	AwaitVolumes VolumeWait = "true"
	// RequireVolumes waits for as long, and then stops the run and takes the cordon back.
	RequireVolumes VolumeWait = "required"
	// IgnoreVolumes does not look at them.
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

// OnFailure is what happens to a node that runs the new system and does not
// become healthy with it.
type OnFailure string

const (
	// StopOnFailure leaves it as it is, for a person to look at.
	StopOnFailure OnFailure = "stop"
	// RollBackOnFailure sends it back to its old system, once, where that is
	// safe.
	RollBackOnFailure OnFailure = "rollback"
)

// OnSuspend is what a run does while somebody has suspended the upgrades of the
// cluster.
type OnSuspend string

const (
	// WaitOnSuspend starts nothing until they are resumed.
	WaitOnSuspend OnSuspend = "wait"
	// StopOnSuspend finishes what is on its way and ends the run.
	StopOnSuspend OnSuspend = "stop"
)

// Repeat is how often and how soon something is tried again that is safe to
// repeat.
type Repeat struct {
	// Attempts counts the first one too.
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
	// Retry names, by node, the boot ID after a fallback from which the same
	// image may be tried again.
	Retry map[string]string
	// Repeat bounds what is tried again within a run: pulls, and installs of
	// which a reboot showed that they did not take.
	Repeat Repeat
	// OnFailure is what happens to a node whose new system does not become
	// healthy.
	OnFailure OnFailure
	// OnSuspend is what a run does while somebody has suspended the upgrades.
	OnSuspend OnSuspend
	// MaxUnavailable bounds the workers that are unavailable at a time, those
	// included that are so without our doing.
	MaxUnavailable Share
	// ParallelPulls is how many nodes pull images at a time; 0 leaves it to the run, which
	// goes by MaxUnavailable.
	ParallelPulls int
	// Pools bound, by name in ascending order, parts of the workers further.
	Pools []Pool
	// Canary names the workers that move before anything else does.
	Canary []string
	// CanarySelector makes more workers canaries; nil makes none.
	CanarySelector Selector
	// Settle is how long a node must have stayed healthy before the next one
	// is disturbed.
	Settle time.Duration
	// Hold names the nodes that are left alone.
	Hold map[string]bool
	// Images are, by node, installer images without tag that replace
	// [Target.InstallerImage].
	Images map[string]string
	// RebootModes are, by node, how it restarts, in place of RebootMode.
	RebootModes map[string]RebootMode
	// SelectorOverrides are exceptions for the nodes that selectors choose.
	SelectorOverrides []SelectorOverride
	// Selected is what the selectors chose last; plan.Select fills it.
	Selected Selection
	// AllowIntermediate walks through the release lines between the running
	// version and the target instead of refusing.
	AllowIntermediate bool
	// Intermediate are the versions to walk through, of Talos and Kubernetes,
	// instead of the newest known patch of their release lines.
	Intermediate []version.Version
	// AllowUnknown accepts versions that are newer than the support matrix.
	AllowUnknown bool
	// Releases are those that are known, and what is against some of them; nil means what is
	// built in.
	Releases *compat.Table
	// Kubernetes is how the Kubernetes gets there.
	Kubernetes KubernetesPolicy
	// SkipChecks names the checks whose findings are only warnings; it is of no
	// effect on those that are firm.
	SkipChecks map[string]bool
	// OwnBootID is the boot ID of the kernel that this process runs on, by which it knows
	// its own node; empty where nobody can tell.
	OwnBootID string
	// SyncInstallImage has the machine configuration name the installer image of
	// a confirmed upgrade.
	SyncInstallImage bool
}

// Holds tells whether the node is to be left alone, by its name or by its labels.
func (p Policy) Holds(node string) bool {
	_, selected := p.Selected.Held[node]

	return selected || p.Hold[node]
}

// Canaries are the workers that move before anything else does: those of
// [Policy.Canary], in that order, and then those that the selector chose.
func (p Policy) Canaries() []string {
	chosen := slices.DeleteFunc(slices.Clone(p.Selected.Canaries), func(name string) bool { return slices.Contains(p.Canary, name) })

	return slices.Concat(p.Canary, chosen)
}

// HasCanaries tells whether anything can move before the others.
func (p Policy) HasCanaries() bool { return len(p.Canaries()) > 0 }

// Image is the installer image without tag that the policy has for the node; empty
// where it has none. One by name comes before one by labels.
func (p Policy) Image(node string) string {
	if own := p.Images[node]; own != "" {
		return own
	}

	if index, found := p.Selected.Overrides[node]; found {
		return p.SelectorOverrides[index].Image
	}

	return ""
}

// RebootModeOf is how the node restarts. What is said of it by name comes before what is
// said by labels.
func (p Policy) RebootModeOf(node string) RebootMode {
	if own := p.RebootModes[node]; own != "" {
		return own
	}

	if index, found := p.Selected.RebootModes[node]; found {
		return p.SelectorOverrides[index].RebootMode
	}

	return p.RebootMode
}

// Defaults of [Policy], as the documentation promises them.
const (
	DefaultNodeTimeout  = 30 * time.Minute
	DefaultDrainTimeout = 5 * time.Minute
	DefaultAttempts     = 2
	DefaultBackoff      = 30 * time.Second
	// PullTimeout bounds the pull of one image on one node. Talos 1.13 retries
	// silently for up to 20 minutes by itself.
	PullTimeout = 25 * time.Minute
)

// DefaultPolicy is what a configuration that says nothing means.
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
