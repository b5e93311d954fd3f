// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/drain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

const (
	// diskLeast is what a node must have free for an installer image, packed and
	// unpacked. Images that are there already are not counted; so much less is
	// enough once they were pulled.
	diskLeast = 600 << 20
	diskFloor = 150 << 20
	// diskShare is the part of its disk, in percent, below which a kubelet begins
	// to evict pods and to delete images (imagefs.available, kubelet's default).
	diskShare = 15
	// pollWorkloads is the longest pause between two looks at all pods.
	pollWorkloads = 20 * time.Second
)

// vitals asks the nodes that are to move about their disks and clocks, but for
// those that an earlier run left in the middle of their upgrades: they are finished
// as they are.
func (p *preflight) vitals(ctx context.Context) []cluster.Finding {
	var group errgroup.Group

	group.SetLimit(observeParallel)

	nodes := slices.DeleteFunc(p.snapshot.Managed(), func(node cluster.Node) bool {
		return node.Machine == nil || unfinished(p.snapshot, node) || !slices.ContainsFunc(p.made.Steps, func(s plan.Step) bool { return s.Node == node.Name })
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

// vitalFindings judges what a node says of its disk, of which so many bytes have
// to be free, and of its clock.
func vitalFindings(node cluster.Node, seen cluster.Vitals, err error, least int64) []cluster.Finding {
	return append(diskFindings(node, seen.Disk, cmp.Or(err, seen.DiskError), least), clockFindings(node, seen.Time, cmp.Or(err, seen.TimeError))...)
}

func diskFindings(node cluster.Node, disk *cluster.DiskSpace, err error, least int64) []cluster.Finding {
	const remedy = "Free space there: in /var, or in the volume of /var/lib/containerd where it has one (talosctl mounts, kubectl describe node)."

	switch {
	case err != nil:
		return unknownDisk(node, "how much space its disk has could not be found out: "+err.Error(), err)
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

// unknownDisk is advice where the kubelet, which watches the same disk, does not
// complain: a node cannot tell about any of its mounts where one of them hangs.
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
		finding.Found, finding.Unknown = "whether its clock is synchronised could not be found out: "+err.Error(), true
	case sync == nil:
		finding.Found, finding.Unknown = "it does not say whether its clock is synchronised", true
		if node.Machine != nil && node.Machine.Settled() {
			// Machines are not ready while their clocks are not synchronised.
			finding.Found, finding.Severity = finding.Found+", but is ready, which takes a clock that is", cluster.Advice
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

// bytesText is a number of bytes as people read it.
func bytesText(n int64) string {
	const mebi = 1 << 20

	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}

	return fmt.Sprintf("%d MiB", n/mebi)
}

// images asks the registries for the installer images of all hops. A registry
// that the runner cannot reach may be one that the nodes do.
func (p *preflight) images(ctx context.Context) []cluster.Finding {
	var (
		references []string
		needed     = map[string][]string{}
	)

	for _, step := range p.made.Steps {
		if step.Component != "" || step.Image == "" || step.Done || step.Finish {
			// What an earlier run began with is there, or is looked at first.
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
		finding.Found = fmt.Sprintf("whether the registry has %s could not be found out from here: %v", reference, err)
		finding.Remedy = "The nodes pull it before any of them is touched, and that decides."
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

// storage finds out whether a snapshot of etcd could be saved, unless there is
// one for the target.
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
		finding.Remedy = "Name a directory that exists, or can be made, on the machine that applies."
	case exposed != "":
		finding.Severity = cluster.Advice
		finding.Found = exposed + ", and a snapshot of etcd holds every secret of the cluster"
		finding.Remedy = "Take the rights of all others away (chmod 700). The snapshots themselves are written for their owner alone."
	default:
		return nil
	}

	return []cluster.Finding{finding}
}

// outlast waits for findings about drains that may pass by themselves, for as
// long as a drain itself would wait. Where anything else stands in the way that
// is of no use.
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

	// The last look that came to its end is what counts.
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

// drains foretells what the drains of the nodes that are to reboot run into.
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
			"It takes list on pods, nodes, PodDisruptionBudgets and DaemonSets.", err)}
	}

	nodes := make([]cluster.KubeNode, 0, len(p.snapshot.Nodes))

	for _, node := range p.snapshot.Nodes {
		if node.Kube != nil {
			nodes = append(nodes, *node.Kube)
		}
	}

	return drain.Foresee(workloads, names, nodes, p.request.Policy.Drain)
}
