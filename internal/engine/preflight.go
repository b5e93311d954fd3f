// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// preflightTimeout bounds all checks of a preflight together; the caller's context may end them earlier.
const preflightTimeout = 90 * time.Second

// Depth is how thorough a preflight is.
type Depth int

const (
	// Planning makes the checks that are cheap enough for every plan.
	Planning Depth = iota
	// Applying checks the workloads as well.
	Applying
)

// Examination is the result of a preflight.
type Examination struct {
	// Findings are those of the plan and of all checks, in the order of [cluster.Checks]; those that the policy
	// skips are advice.
	Findings []cluster.Finding
	// Made are the names of the checks that were made, in the same order.
	Made []string
	// Manifests are what a sync of the bootstrap manifests as rendered now would change; a plan that moves
	// kube-proxy or Talos changes more.
	Manifests []cluster.ManifestChange
}

// Preflight makes all checks of a plan at once, within a bounded time, and changes nothing. The findings of the
// plan itself are part of the result.
func (e *Engine) Preflight(ctx context.Context, observed cluster.Observation, made plan.Plan, request Request, depth Depth) Examination {
	p := &preflight{engine: e, snapshot: observed, made: made, request: request}

	probes := append(p.probes(depth), p.moments()...)

	return p.examine(ctx, probes)
}

// preflight is an examination in the making.
type preflight struct {
	engine *Engine

	snapshot cluster.Observation
	made     plan.Plan
	request  Request

	// manifests are what a sync would change. syncable sets them, and they are read when all probes have
	// returned.
	manifests []cluster.ManifestChange
}

// probe is a check that needs more than the observation.
type probe struct {
	// checks are the names of the checks that it makes.
	checks []string
	ask    func(ctx context.Context) []cluster.Finding
}

// examine makes the checks concurrently. If a plan has nothing to do, or a finding that no waiting cures, only
// its own findings are returned.
func (p *preflight) examine(ctx context.Context, probes []probe) Examination {
	found := slices.Clone(p.made.Findings)
	names := observedChecks(p.made)

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

// ask runs all probes at once.
func (p *preflight) ask(ctx context.Context, probes []probe) []cluster.Finding {
	bounded, cancel := p.engine.clock.WithTimeout(ctx, preflightTimeout)
	defer cancel()

	var group sync.WaitGroup

	answers := make([][]cluster.Finding, len(probes))

	for index, probe := range probes {
		group.Go(func() { answers[index] = probe.ask(bounded) })
	}

	group.Wait()

	return slices.Concat(answers...)
}

// observedChecks returns the checks that the planner makes on an observation, most of them only if there is
// something to do.
func observedChecks(made plan.Plan) []string {
	always := []string{cluster.CheckTalosAPI, cluster.CheckKubernetesAPI, cluster.CheckVersions, cluster.CheckCompatibility}
	if len(made.Steps) == 0 {
		return always
	}

	if made.Policy.OwnBootID != "" {
		always = append(always, cluster.CheckOwnNode)
	}

	return append(always,
		cluster.CheckRoles, cluster.CheckDefects, cluster.CheckComponentImages, cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum, cluster.CheckEtcdAlarms,
		cluster.CheckEtcdRaftLag, cluster.CheckEtcdDBSize, cluster.CheckNodesReady, cluster.CheckControlPlane, cluster.CheckSchematic,
		cluster.CheckSecureBoot, cluster.CheckConfiguration, cluster.CheckPendingInstall, cluster.CheckSingleControlPlane, cluster.CheckTwoMembers,
		cluster.CheckExternalChanges)
}

// checkRank returns the place of a check in the order in which people read them; unknown checks come last.
func checkRank(name string) int {
	all := cluster.Checks()

	index := slices.IndexFunc(all, func(c cluster.Check) bool { return c.Name == name })
	if index < 0 {
		return len(all)
	}

	return index
}

// probes returns the checks whose results hold for as long as the cluster does not change.
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

// unasked returns a check that cannot be made. It is advice, because the finding about the Kubernetes API already
// prevents an apply.
func (p *preflight) unasked(check string) probe {
	return probe{checks: []string{check}, ask: func(context.Context) []cluster.Finding {
		return []cluster.Finding{{
			Check: check, Severity: cluster.Advice, Unknown: true, Err: p.snapshot.KubernetesError, Cause: cluster.CheckKubernetesAPI,
			Found:  "this check could not be made, because the Kubernetes API does not answer",
			Remedy: "Make it answer, as the check " + cluster.CheckKubernetesAPI + " says; then this check is made too.",
		}}
	}}
}

// moments returns the checks whose results may change at any moment: once it has begun, an apply waits for them
// instead.
func (p *preflight) moments() []probe {
	if p.snapshot.KubernetesError != nil {
		unasked := []probe{p.unasked(cluster.CheckLock)}
		if len(p.request.Gates) > 0 {
			unasked = append(unasked, p.unasked(cluster.CheckGates))
		}

		return unasked
	}

	probes := []probe{{checks: []string{cluster.CheckLock, cluster.CheckSuspended}, ask: p.lease}}

	if len(p.request.Gates) > 0 {
		probes = append(probes, probe{checks: []string{cluster.CheckGates}, ask: func(ctx context.Context) []cluster.Finding {
			return findClosed(ctx, p.request.Gates, "")
		}})
	}

	return probes
}

// operated checks the operator before anything is begun.
func (p *preflight) operated(ctx context.Context) []cluster.Finding {
	report, err := p.engine.operator.Report(ctx)

	return p.engine.judgeOperator(report, err, p.request)
}

// syncable checks whether the bootstrap manifests can be synced, and finds out what a sync would change.
func (p *preflight) syncable(ctx context.Context) []cluster.Finding {
	changes, err := p.engine.outdated(ctx, p.snapshot, p.made.Policy)

	p.manifests = changes

	switch {
	case refusesSync(err):
		return []cluster.Finding{unsyncable(err)}
	case err != nil:
		return []cluster.Finding{{
			Check: cluster.CheckManifests, Severity: cluster.Advice, Err: err, Unknown: true,
			Found:  fmt.Sprintf("unable to find out what a sync of the bootstrap manifests would change: %v", err),
			Remedy: "Run the plan again to see it; the sync at the end of an apply repeats what may heal.",
		}}
	default:
		return nil
	}
}

// lease reports who holds the lease, and whether the upgrades are suspended. Only watching the lease shows
// whether its holder is alive, which an apply does.
func (p *preflight) lease(ctx context.Context) []cluster.Finding {
	lease, err := p.engine.kubernetes.Lease(ctx)
	if err != nil {
		return []cluster.Finding{unknown(cluster.CheckLock, "", "unable to find out who holds the lease kube-system/talosupgrade: "+err.Error(),
			"Allow the credentials to get, create and patch leases in kube-system.", err)}
	}

	return append(p.holder(lease), p.suspension(lease)...)
}

// suspension reports that the upgrades are suspended, and what an apply would do about it.
func (p *preflight) suspension(lease cluster.Lease) []cluster.Finding {
	if lease.Suspended == nil {
		return nil
	}

	does := "An apply starts nothing until they are resumed"
	if p.request.Policy.OnSuspend == cluster.StopOnSuspend {
		does = "An apply stops before it starts anything"
	}

	return []cluster.Finding{{
		Check: cluster.CheckSuspended, Severity: cluster.Observed, Found: suspendedText(*lease.Suspended),
		Remedy: does + ", as on_suspend says. Ask whoever suspended them; to resume: " + resumeSuspended + ".",
	}}
}

// holder reports who holds the lease.
func (p *preflight) holder(lease cluster.Lease) []cluster.Finding {
	if lease.Holder == "" || lease.Holder == p.engine.holder() {
		return nil
	}

	// The clock of the holder may be ahead of ours.
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

// window reports that the maintenance window is closed.
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

// unknown returns the finding of a check that could not be made.
func unknown(check, node, found, remedy string, err error) cluster.Finding {
	return cluster.Finding{Check: check, Severity: cluster.Observed, Node: node, Found: found, Remedy: remedy, Err: err, Unknown: true}
}

const (
	checkRemovals  = cluster.CheckRemovals
	checkManifests = cluster.CheckManifests
)

// refusesSync reports whether the error of a comparison means that a sync will be refused as well.
func refusesSync(err error) bool {
	return errors.Is(err, cluster.ErrDenied) || errors.Is(err, cluster.ErrCredentials) || errors.Is(err, errNoConnection)
}

func unsyncable(err error) cluster.Finding {
	return cluster.Finding{
		Check: checkManifests, Severity: cluster.Observed, Err: err,
		Found: fmt.Sprintf("the bootstrap manifests could not be synced after the roll: %v", err), Remedy: manifestRights,
	}
}

// outdated returns what a sync of the manifests would change now.
func (e *Engine) outdated(ctx context.Context, observed cluster.Observation, policy cluster.Policy) ([]cluster.ManifestChange, error) {
	if e.manifests == nil {
		return nil, errNoConnection
	}

	r := &run{engine: e, request: Request{Policy: policy}, shared: newShared(policy)}

	renderer, options, seen := r.renders(observed)
	if seen != "" {
		return nil, errors.New(seen)
	}

	return e.manifests.Diff(ctx, renderer.Address, options)
}

// removed returns findings about what is in use and removed by a minor version on the path, for all hops of
// Kubernetes.
func (e *Engine) removed(ctx context.Context, observed cluster.Observation, made plan.Plan) []cluster.Finding {
	var findings []cluster.Finding

	controlPlanes, workers, names := asked(observed, made)

	for _, hop := range made.Hops {
		from, to := hop.From.Kubernetes, hop.To.Kubernetes
		if hop.Product != version.Kubernetes || from.Minor().Compare(to.Minor()) >= 0 {
			continue
		}

		if e.removals == nil {
			return []cluster.Finding{unchecked(errNoConnection, cluster.Observed)}
		}

		removals, err := e.askRemovals(ctx, hop, controlPlanes, workers)

		switch {
		case errors.Is(err, cluster.ErrUnsupported):
			findings = append(findings, unchecked(err, cluster.Advice))
		case err != nil:
			findings = append(findings, unchecked(err, cluster.Observed))
		}

		for _, removal := range removals {
			findings = append(findings, removalFinding(removal, names))
		}
	}

	return findings
}

// askAttempts is how often a question is asked if the answer is lost.
const askAttempts = 3

// askRemovals asks for what a hop removes, and again if the answer is lost.
func (e *Engine) askRemovals(ctx context.Context, hop plan.Hop, controlPlanes, workers []string) ([]cluster.Removal, error) {
	for attempt := 1; ; attempt++ {
		found, err := e.removals.Removals(ctx, hop.From.Kubernetes, hop.To.Kubernetes, controlPlanes, workers)
		if err == nil || !cluster.Heals(err) || attempt == askAttempts {
			return found, err
		}

		if sleepErr := e.clock.Sleep(ctx, maxPoll); sleepErr != nil {
			return nil, err
		}
	}
}

// asked returns the addresses of the nodes that are not held and that answer, and their names by address.
func asked(observed cluster.Observation, made plan.Plan) (controlPlanes, workers []string, names map[string]string) {
	names = map[string]string{}

	for _, node := range observed.Managed() {
		if node.Machine == nil || slices.Contains(made.Held, node.Name) {
			continue
		}

		names[node.Address] = node.Name

		if node.Role == cluster.ControlPlane {
			controlPlanes = append(controlPlanes, node.Address)
		} else {
			workers = append(workers, node.Address)
		}
	}

	return controlPlanes, workers, names
}

func unchecked(err error, severity cluster.Severity) cluster.Finding {
	return cluster.Finding{
		Check: checkRemovals, Severity: severity, Err: err, Unknown: true,
		Found:  fmt.Sprintf("unable to find out whether anything in use is removed by the next release of Kubernetes: %v", err),
		Remedy: "Read its release notes before you go on, and make the Kubernetes and Talos APIs of all nodes answer.",
	}
}

func removalFinding(removal cluster.Removal, names map[string]string) cluster.Finding {
	finding := cluster.Finding{
		Check: checkRemovals, Severity: cluster.Observed, Node: names[removal.Address],
		Found:  fmt.Sprintf("its %s uses the %s %s, which Kubernetes %s does not have", removal.Component, removal.Kind, removal.Name, removal.In.Minor()),
		Remedy: "Take it out of extraArgs in the machine configuration first.",
	}

	if removal.Component == cluster.Kubelet {
		finding.Remedy = "Take it out of extraArgs or extraConfig of the kubelet in the machine configuration first."
	}

	switch {
	case removal.Locked != nil:
		finding.Found = fmt.Sprintf("its %s sets the %s %s to %t, which Kubernetes %s has locked to %t, so that it would not start",
			removal.Component, removal.Kind, removal.Name, !*removal.Locked, removal.In.Minor(), *removal.Locked)
	case removal.Unknown:
		finding.Severity = cluster.Advice
		finding.Found = fmt.Sprintf("its %s sets the %s %s, which neither Kubernetes %s nor an earlier minor version has that this provider knows; with a gate that it does not have it would not start",
			removal.Component, removal.Kind, removal.Name, removal.In.Minor())
	}

	if removal.Refers != "" {
		finding.Found = fmt.Sprintf("its static pod %s refers to %s of the Kubernetes API, and a kubelet of Kubernetes %s does not run such a pod",
			removal.Name, removal.Refers, removal.In.Minor())
		finding.Remedy = "Give it what it needs as files of the machine (machine.files), or run it as a DaemonSet."
	}

	if removal.Component == "" {
		finding.Found = fmt.Sprintf("the cluster holds %d objects of %s, which Kubernetes %s does not serve", removal.Objects, removal.Name, removal.In.Minor())
		finding.Remedy = "Migrate them to a version that is served (kubectl get " + removal.Name + " --all-namespaces), and delete only those that nobody needs: one object is listed under all versions of its API."
	}

	return finding
}

const (
	// diskLeast is what a node must have free for an installer image, packed and unpacked. Images that are
	// already there are not considered. diskFloor is enough once they were pulled.
	diskLeast = 600 << 20
	diskFloor = 150 << 20
	// diskShare is the part of its disk, in percent, below which a kubelet begins to evict pods and to delete
	// images (imagefs.available, kubelet's default).
	diskShare = 15
	// pollWorkloads is the longest pause between two lists of all pods.
	pollWorkloads = 20 * time.Second
)

// vitals asks the nodes with a step about their disks and clocks, except for those that an earlier run left in
// the middle of their upgrades: they are finished in any case.
func (p *preflight) vitals(ctx context.Context) []cluster.Finding {
	var group errgroup.Group

	group.SetLimit(observeParallel)

	nodes := slices.DeleteFunc(p.snapshot.Managed(), func(node cluster.Node) bool {
		return node.Machine == nil || rule.Unfinished(p.snapshot, node) || !slices.ContainsFunc(p.made.Steps, func(s plan.Step) bool { return s.Node == node.Name })
	})
	findings := make([][]cluster.Finding, len(nodes))

	for index, node := range nodes {
		group.Go(func() error {
			found, err := p.engine.talos.Vitals(ctx, node.Address)
			findings[index] = vitalFindings(node, found, err, diskLeast)

			return nil
		})
	}

	_ = group.Wait()

	return slices.Concat(findings...)
}

// vitalFindings judges what a node reports about its disk, of which least bytes must be free, and about its
// clock.
func vitalFindings(node cluster.Node, seen cluster.Vitals, err error, least int64) []cluster.Finding {
	return append(diskFindings(node, seen.Disk, cmp.Or(err, seen.DiskError), least), clockFindings(node, seen.Time, cmp.Or(err, seen.TimeError))...)
}

func diskFindings(node cluster.Node, disk *cluster.DiskSpace, err error, least int64) []cluster.Finding {
	const remedy = "Free space there: in /var, or in the volume of /var/lib/containerd where it has one (talosctl mounts, kubectl describe node)."

	switch {
	case err != nil:
		return unknownDisk(node, "unable to find out how much space its disk has: "+err.Error(), err)
	case disk == nil:
		return unknownDisk(node, "it does not say how much space there is for images", nil)
	case disk.Available < least:
		return []cluster.Finding{{
			Check: cluster.CheckDiskSpace, Severity: cluster.Observed, Node: node.Name, Remedy: remedy,
			Found: fmt.Sprintf("its disk has %s free for images, and those of an upgrade need %s", bytesText(disk.Available), bytesText(least)),
		}}
	case disk.Available*100 < disk.Size*diskShare:
		return []cluster.Finding{{
			Check: cluster.CheckDiskSpace, Severity: cluster.Advice, Node: node.Name, Remedy: remedy,
			Found: fmt.Sprintf("its disk has %s of %s free for images; below %d %% the kubelet deletes images, also those that were just pulled", bytesText(disk.Available), bytesText(disk.Size), diskShare),
		}}
	default:
		return nil
	}
}

// unknownDisk returns advice unless the kubelet, which watches the same disk, reports pressure: a node cannot
// report on any of its mounts if one of them hangs.
func unknownDisk(node cluster.Node, found string, err error) []cluster.Finding {
	finding := unknown(cluster.CheckDiskSpace, node.Name, found,
		"Its kubelet reports no DiskPressure, so that does not stop the upgrade. Look at its mounts (talosctl mounts): one that hangs, such as that of an NFS server that is gone, hides all others.", err)
	finding.Severity = cluster.Advice

	if node.Kube != nil && slices.Contains(node.Kube.Pressure, cluster.DiskPressure) {
		finding.Severity, finding.Found = cluster.Observed, found+", and its kubelet reports "+cluster.DiskPressure
		finding.Remedy = "Make room on its disk (kubectl describe node, talosctl mounts)."
	}

	return []cluster.Finding{finding}
}

func clockFindings(node cluster.Node, sync *cluster.TimeSync, err error) []cluster.Finding {
	const remedy = "Look at it (talosctl time, talosctl get timestatus) and at machine.time in its configuration: certificates and leases depend on clocks."

	finding := cluster.Finding{Check: cluster.CheckTimeSync, Severity: cluster.Observed, Node: node.Name, Remedy: remedy, Err: err}

	switch {
	case err != nil:
		finding.Found, finding.Unknown = "unable to find out whether its clock is synchronised: "+err.Error(), true
	case sync == nil:
		finding.Found, finding.Unknown = "it does not say whether its clock is synchronised", true
		if node.Machine != nil && node.Machine.Settled() {
			// A machine is not ready while its clock is not synchronised.
			finding.Found, finding.Severity = finding.Found+", but it is ready, which requires a synchronised clock", cluster.Advice
		}
	case sync.Disabled:
		finding.Found, finding.Severity = "the synchronisation of its clock is switched off", cluster.Advice
	case !sync.Synced:
		finding.Found = "its clock is not synchronised"
	default:
		return nil
	}

	return []cluster.Finding{finding}
}

// bytesText returns a number of bytes as people read it.
func bytesText(n int64) string {
	const mebi = 1 << 20

	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}

	return fmt.Sprintf("%d MiB", n/mebi)
}

// images asks the registries for the installer images of all hops. A registry that cannot be reached from here
// may still be reachable from the nodes.
func (p *preflight) images(ctx context.Context) []cluster.Finding {
	var (
		references []string
		needed     = map[string][]string{}
	)

	for _, step := range p.made.Steps {
		if step.Component != "" || step.Image == "" || step.Done || step.Finish {
			// The image of a step that an earlier run began is already there, or the node is examined first.
			continue
		}

		if needed[step.Image] == nil {
			references = append(references, step.Image)
		}

		if !slices.Contains(needed[step.Image], step.Node) {
			needed[step.Image] = append(needed[step.Image], step.Node)
		}
	}

	var group errgroup.Group

	group.SetLimit(pullParallel)

	findings := make([][]cluster.Finding, len(references))

	for index, reference := range references {
		group.Go(func() error {
			findings[index] = imageFindings(reference, needed[reference], p.engine.registry.Image(ctx, reference))

			return nil
		})
	}

	_ = group.Wait()

	return slices.Concat(findings...)
}

func imageFindings(reference string, nodes []string, err error) []cluster.Finding {
	finding := cluster.Finding{Check: cluster.CheckInstallerImage, Severity: cluster.Observed, Err: err}
	if len(nodes) == 1 {
		finding.Node = nodes[0]
	}

	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrNotFound):
		finding.Found = fmt.Sprintf("the registry does not have %s, which %s", reference, needs(nodes))
		finding.Remedy = "Check the version and installer_image, or mirror the image first."
	default:
		finding.Severity, finding.Unknown = cluster.Advice, true
		finding.Found = fmt.Sprintf("unable to find out from here whether the registry has %s: %v", reference, err)
		finding.Remedy = "Nothing to do: before any node is disturbed, one node of each kind pulls it, and if one cannot, the apply ends there."
	}

	return []cluster.Finding{finding}
}

func needs(nodes []string) string {
	const most = 3

	switch {
	case len(nodes) == 1:
		return nodes[0] + " needs"
	case len(nodes) > most:
		return fmt.Sprintf("%d nodes need", len(nodes))
	default:
		return strings.Join(nodes, ", ") + " need"
	}
}

// storage checks whether a snapshot of etcd can be saved, unless there is one for the target.
func (p *preflight) storage(ctx context.Context) []cluster.Finding {
	if observedSnapshotFor(p.snapshot, p.request.Target) != nil {
		return nil
	}

	finding := cluster.Finding{Check: cluster.CheckSnapshot, Attribute: "etcd_snapshot", Within: []cluster.Within{cluster.Field("directory")}}

	exposed, err := p.request.Snapshots.Check(ctx)

	switch {
	case err != nil:
		finding.Severity, finding.Err = cluster.Observed, err
		finding.Found = "a snapshot of etcd could not be saved: " + err.Error()
		finding.Remedy = "Name a directory that exists or can be created on the machine that runs terraform apply."
	case exposed != "":
		finding.Severity = cluster.Advice
		finding.Found = exposedText(exposed)
		finding.Remedy = "Remove the rights of all others (chmod 700). The snapshots themselves are readable by their owner alone."
	default:
		return nil
	}

	return []cluster.Finding{finding}
}

// outlast waits for findings about drains that may pass by themselves, for as long as a drain itself would wait.
// It does not wait if anything else is in the way.
func (p *preflight) outlast(ctx context.Context, found []cluster.Finding) []cluster.Finding {
	passing := func(findings []cluster.Finding) bool {
		blocking := cluster.Blocking(findings)

		return len(blocking) > 0 && !slices.ContainsFunc(blocking, func(f cluster.Finding) bool { return !f.Passing })
	}

	if !passing(found) {
		return found
	}

	rest := slices.DeleteFunc(slices.Clone(found), func(f cluster.Finding) bool { return f.Check == cluster.CheckDrain })

	bounded, cancel := p.engine.clock.WithTimeout(ctx, p.request.Policy.Drain.Timeout)
	defer cancel()

	last := slices.DeleteFunc(slices.Clone(found), func(f cluster.Finding) bool { return f.Check != cluster.CheckDrain })

	// The last attempt that was not cut off counts.
	_ = p.engine.waitClosely(bounded, "", "pods that were moved to be Ready again", pollWorkloads, func(ctx context.Context) (bool, string, error) {
		if seen := p.request.Policy.Skip(p.drains(ctx)); ctx.Err() == nil {
			last = seen
		}

		if !passing(last) {
			return true, "", nil
		}

		return false, cluster.Blocking(last)[0].Found, nil
	})

	return append(rest, last...)
}

// drains forecasts what the drains of the nodes that will be rebooted run into.
func (p *preflight) drains(ctx context.Context) []cluster.Finding {
	var names []string

	for _, step := range p.made.Steps {
		if step.Component == "" && !step.Done && !slices.Contains(names, step.Node) {
			names = append(names, step.Node)
		}
	}

	if len(names) == 0 {
		return nil
	}

	if p.engine.workloads == nil {
		return []cluster.Finding{unknown(cluster.CheckDrain, "", "the pods and their budgets could not be listed: "+errNoConnection.Error(), "Make the Kubernetes API answer.", errNoConnection)}
	}

	workloads, err := p.engine.workloads.Workloads(ctx)
	if err != nil {
		return []cluster.Finding{unknown(cluster.CheckDrain, "", "the pods and their budgets could not be listed: "+err.Error(),
			"Allow the credentials to list pods, nodes, PodDisruptionBudgets and DaemonSets.", err)}
	}

	nodes := make([]cluster.KubeNode, 0, len(p.snapshot.Nodes))

	for _, node := range p.snapshot.Nodes {
		if node.Kube != nil {
			nodes = append(nodes, *node.Kube)
		}
	}

	return health.ForecastDrains(workloads, names, nodes, p.request.Policy.Drain)
}

// outline emits what is about to be done, or what forbids it; nothing if there is neither.
func (e *Engine) outline(observed cluster.Observation, made plan.Plan, findings []cluster.Finding, request Request) {
	if len(made.Steps) == 0 && len(cluster.Blocking(findings)) == 0 {
		return
	}

	outline := cluster.Outline{
		ClusterID: observed.ID, Nodes: observed.Nodes, Held: made.Held,
		Upgrades: make([]cluster.PlannedUpgrade, 0, len(made.Steps)), Estimate: made.Estimate(), Findings: findings,
	}

	for _, step := range made.Steps {
		outline.Upgrades = append(outline.Upgrades, cluster.PlannedUpgrade{
			Node: step.Node, Role: step.Role, Component: step.Component, From: step.From, To: step.To,
			Image: step.Image, Estimate: step.Estimate, Canary: step.Canary, Finish: step.Finish,
		})
	}

	// The event has no progress, because this run does not hold the lease yet and must not publish one.
	e.emit(cluster.Event{Kind: cluster.EventPlanned, Target: request.Target, Outline: &outline})
}

func hasPermanent(findings []cluster.Finding) bool {
	return slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Severity == cluster.Permanent })
}
