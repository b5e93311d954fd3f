// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// preflightPatience bounds all checks of a preflight together; the caller's
// context may end them earlier.
const preflightPatience = 90 * time.Second

// Depth is how closely a preflight looks.
type Depth int

const (
	// Planning looks at all that may be looked at with every plan.
	Planning Depth = iota
	// Applying looks at the workloads as well.
	Applying
)

// Examination is what a preflight found.
type Examination struct {
	// Findings are those of the plan and of all checks, in the order of
	// [cluster.Checks]; what the policy skips is advice.
	Findings []cluster.Finding
	// Made names the checks that were made, in the same order.
	Made []string
	// Manifests are what a sync of the bootstrap manifests would change as they
	// are rendered now; a plan that moves kube-proxy or Talos changes more.
	Manifests []cluster.ManifestChange
}

// Preflight makes all checks of a plan at once, within a bounded time, and
// changes nothing. What the plan itself found is a part of the result.
func (e *Engine) Preflight(ctx context.Context, snapshot cluster.Snapshot, made plan.Plan, request Request, depth Depth) Examination {
	p := &preflight{engine: e, snapshot: snapshot, made: made, request: request}

	probes := append(p.probes(depth), p.moments()...)

	return p.examine(ctx, probes)
}

// preflight is an examination in the making.
type preflight struct {
	engine *Engine

	snapshot cluster.Snapshot
	made     plan.Plan
	request  Request

	mu        sync.Mutex
	manifests []cluster.ManifestChange
}

// probe is a check that takes more than the observation.
type probe struct {
	// checks are the names of the checks that it makes.
	checks []string
	ask    func(ctx context.Context) []cluster.Finding
}

// examine makes the checks beside each other. Of a plan that has nothing to do,
// or that no waiting makes possible, only its own findings are worth anything.
func (p *preflight) examine(ctx context.Context, probes []probe) Examination {
	found := slices.Clone(p.made.Findings)
	names := observedChecks(len(p.made.Steps) > 0)

	if len(p.made.Steps) > 0 && !hasPermanent(found) {
		found = append(found, p.request.Policy.Skip(p.ask(ctx, probes))...)

		for _, probe := range probes {
			names = append(names, probe.checks...)
		}
	}

	for _, finding := range found {
		names = append(names, finding.Check)
	}

	slices.SortStableFunc(found, func(a, b cluster.Finding) int { return cmp.Compare(checkRank(a.Check), checkRank(b.Check)) })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(checkRank(a), checkRank(b)) })

	return Examination{Findings: found, Made: slices.Compact(names), Manifests: p.manifests}
}

// ask asks all probes at once.
func (p *preflight) ask(ctx context.Context, probes []probe) []cluster.Finding {
	bounded, cancel := p.engine.clock.WithTimeout(ctx, preflightPatience)
	defer cancel()

	var group sync.WaitGroup

	answers := make([][]cluster.Finding, len(probes))

	for index, probe := range probes {
		group.Go(func() { answers[index] = probe.ask(bounded) })
	}

	group.Wait()

	return slices.Concat(answers...)
}

// observedChecks are the checks that the planner makes on an observation: most
// of them only where there is something to do.
func observedChecks(work bool) []string {
	always := []string{cluster.CheckTalosAPI, cluster.CheckKubernetesAPI, cluster.CheckVersions, cluster.CheckCompatibility}
	if !work {
		return always
	}

	return append(always,
		cluster.CheckRoles, cluster.CheckComponentImages, cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum, cluster.CheckEtcdAlarms,
		cluster.CheckEtcdRaftLag, cluster.CheckEtcdDBSize, cluster.CheckNodesReady, cluster.CheckControlPlane, cluster.CheckSchematic,
		cluster.CheckSecureBoot, cluster.CheckPendingInstall, cluster.CheckSingleControlPlane, cluster.CheckTwoMembers,
		cluster.CheckExternalChanges)
}

// checkRank is the place of a check in the order in which people read them; what
// is not listed comes last.
func checkRank(name string) int {
	all := cluster.Checks()

	index := slices.IndexFunc(all, func(c cluster.Check) bool { return c.Name == name })
	if index < 0 {
		return len(all)
	}

	return index
}

// probes are the checks that hold for as long as the cluster stays what it is.
func (p *preflight) probes(depth Depth) []probe {
	probes := []probe{
		{checks: []string{cluster.CheckDiskSpace, cluster.CheckTimeSync}, ask: p.vitals},
		{checks: []string{cluster.CheckRemovals}, ask: func(ctx context.Context) []cluster.Finding { return p.engine.removed(ctx, p.snapshot, p.made) }},
	}

	away := p.snapshot.KubernetesError != nil

	switch {
	case synced(p.made.Steps) && away:
		probes = append(probes, p.unasked(cluster.CheckManifests))
	case synced(p.made.Steps):
		probes = append(probes, probe{checks: []string{cluster.CheckManifests}, ask: p.syncable})
	}

	if p.engine.registry != nil {
		probes = append(probes, probe{checks: []string{cluster.CheckInstallerImage}, ask: p.images})
	}

	if p.request.Snapshots != nil {
		probes = append(probes, probe{checks: []string{cluster.CheckSnapshot}, ask: p.storage})
	}

	switch looks := depth == Applying && p.request.Policy.Drain.Enabled; {
	case looks && away:
		probes = append(probes, p.unasked(cluster.CheckDrain))
	case looks:
		probes = append(probes, probe{checks: []string{cluster.CheckDrain}, ask: p.drains})
	}

	if p.request.Window != nil {
		probes = append(probes, probe{checks: []string{cluster.CheckWindow}, ask: p.window})
	}

	if p.engine.operator != nil {
		probes = append(probes, probe{checks: []string{cluster.CheckOperator}, ask: p.operated})
	}

	return probes
}

// unasked is a check for which nobody can be asked. That the Kubernetes API is
// away stops an apply already.
func (p *preflight) unasked(check string) probe {
	return probe{checks: []string{check}, ask: func(context.Context) []cluster.Finding {
		return []cluster.Finding{{
			Check: check, Severity: cluster.Advice, Unknown: true, Err: p.snapshot.KubernetesError,
			Found:  "it could not be made, because the Kubernetes API does not answer",
			Remedy: "Make it answer, as the check " + cluster.CheckKubernetesAPI + " says; this one is made then.",
		}}
	}}
}

// moments are the checks of what may be another moment's affair: an apply waits
// for it instead, once it has begun.
func (p *preflight) moments() []probe {
	if p.snapshot.KubernetesError != nil {
		unasked := []probe{p.unasked(cluster.CheckLock)}
		if len(p.request.Gates) > 0 {
			unasked = append(unasked, p.unasked(cluster.CheckGates))
		}

		return unasked
	}

	probes := []probe{{checks: []string{cluster.CheckLock}, ask: p.lease}}

	if len(p.request.Gates) > 0 {
		probes = append(probes, probe{checks: []string{cluster.CheckGates}, ask: func(ctx context.Context) []cluster.Finding {
			return findClosed(ctx, p.request.Gates, "")
		}})
	}

	return probes
}

// syncable finds out whether the bootstrap manifests could be synced, and what a
// sync would change.
func (p *preflight) syncable(ctx context.Context) []cluster.Finding {
	changes, err := p.engine.outdated(ctx, p.snapshot, p.request.Policy)

	p.mu.Lock()
	p.manifests = changes
	p.mu.Unlock()

	switch {
	case refusesSync(err):
		return []cluster.Finding{unsyncable(err)}
	case err != nil:
		return []cluster.Finding{{
			Check: cluster.CheckManifests, Severity: cluster.Advice, Err: err, Unknown: true,
			Found:  fmt.Sprintf("what a sync of the bootstrap manifests would change could not be found out: %v", err),
			Remedy: "Run the plan again to see it; the sync at the end of an apply repeats what may heal.",
		}}
	default:
		return nil
	}
}

// lease tells whether somebody holds the lease. Whether they are alive only
// watching it tells, which an apply does.
func (p *preflight) lease(ctx context.Context) []cluster.Finding {
	lease, err := p.engine.kubernetes.Lease(ctx)
	if err != nil {
		return []cluster.Finding{unknown(cluster.CheckLock, "", "who holds the lease kube-system/talosupgrade could not be found out: "+err.Error(),
			"Make it readable: it takes get, create and patch on leases in kube-system.", err)}
	}

	if lease.Holder == "" || lease.Holder == p.engine.holder() {
		return nil
	}

	// The clock of whoever holds it may be ahead of ours.
	age := max(p.engine.clock.Now().Sub(lease.Renewed).Round(time.Second), 0)
	found := fmt.Sprintf("the lease kube-system/talosupgrade is held by %s since %s and was renewed %s ago",
		lease.Holder, lease.Acquired.UTC().Format(time.RFC3339), age)

	if age < leaseDuration {
		return []cluster.Finding{{Check: cluster.CheckLock, Severity: cluster.Observed, Found: found, Remedy: "Wait for that upgrade to finish. " + freeRemedy}}
	}

	return []cluster.Finding{{
		Check: cluster.CheckLock, Severity: cluster.Advice, Found: found,
		Remedy: fmt.Sprintf("An apply watches it for %s and takes it over if it stands still.", leaseDuration),
	}}
}

// window tells whether the maintenance window is closed.
func (p *preflight) window(context.Context) []cluster.Finding {
	now := p.engine.clock.Now()
	if open, until := p.request.Window.Open(now); !open {
		return []cluster.Finding{{
			Check: cluster.CheckWindow, Severity: cluster.Observed, Attribute: "maintenance_window",
			Found:  fmt.Sprintf("the maintenance window (%s) is closed; %s", p.request.Window, opening(until)),
			Remedy: "Apply while it is open, or change maintenance_window.",
		}}
	}

	return nil
}

// unknown is the finding of a check that could not be made.
func unknown(check, node, found, remedy string, err error) cluster.Finding {
	return cluster.Finding{Check: check, Severity: cluster.Observed, Node: node, Found: found, Remedy: remedy, Err: err, Unknown: true}
}
