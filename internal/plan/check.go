// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkWork checks the roll as a whole; without steps there is nothing to check.
func (p *planner) checkWork() {
	if len(p.made.Steps) == 0 {
		return
	}

	observed := &p.snapshot

	p.checkRoles()

	if observed.Journal == nil && observed.KubernetesError == nil {
		p.add(cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Unknown: true, Err: observed.JournalError,
			Found:  fmt.Sprintf("the journal kube-system/talosupgrade-journal cannot be read: %v", observed.JournalError),
			Remedy: "Make it readable and apply again: without it an upgrade could destroy a node's fallback system.",
		})
	}

	p.checkReadable()
	p.checkConfigurations()
	p.checkCluster()
	p.checkStale()
	p.checkIdentity()
	p.checkDeparted()
	p.checkEtcd()
	p.checkControlPlanes()
	p.checkExternal()
	p.checkOwnNode()
	p.checkPressure()
	p.checkCanaries()

	if !p.checkBudget() {
		p.checkRoom()
	}
}

// checkRoles requires the only role that may upgrade. If the roles are unknown, the nodes themselves refuse what
// the credentials may not do.
func (p *planner) checkRoles() {
	if p.lesserRole() {
		p.add(cluster.Finding{
			Check: cluster.CheckRoles, Severity: cluster.Observed,
			Found:  fmt.Sprintf("the Talos credentials carry %s; an upgrade needs %s", strings.Join(p.snapshot.Roles, ", "), adminRole),
			Remedy: "Apply with a talosconfig of an administrator; planning works with os:reader.",
		})
	}
}

// lesserRole reports whether the credentials are known not to be an administrator's.
func (p *planner) lesserRole() bool {
	return len(p.snapshot.Roles) > 0 && !slices.Contains(p.snapshot.Roles, adminRole)
}

// checkReadable refuses to upgrade nodes whose machine configuration cannot be read. The installer image is not
// guessed, because a wrong one would cost the node its extensions; neither are the images of components, which
// may not be pinned at all.
func (p *planner) checkReadable() {
	var unread, unchosen, unjudged []string

	cause := ""
	if p.lesserRole() {
		cause = cluster.CheckRoles
	}

	ipvs, known := p.usesIPVS()

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.moves+node.restarts == 0 || node.Machine == nil || node.Machine.Config != nil {
			continue
		}

		unread = append(unread, node.Name)

		if _, refuses := p.refusing(node); refuses || (ipvs || !known) && p.enters(node, unloadedSince()) {
			unjudged = append(unjudged, node.Name)
		}

		if node.moves > 0 && p.override(node.Name) == "" {
			unchosen = append(unchosen, node.Name)
		}
	}

	for _, missed := range []struct {
		check, what string
		nodes       []string
	}{
		{cluster.CheckSchematic, "the installer image is not known on ", unchosen},
		{cluster.CheckComponentImages, "the images that it pins are not known on ", unread},
		{cluster.CheckConfiguration, "whether the next Talos takes it is not known on ", unjudged},
	} {
		if len(missed.nodes) > 0 {
			p.add(cluster.Finding{
				Check: missed.check, Severity: cluster.Observed, Unknown: true, Cause: cause,
				Found:  "the machine configuration cannot be read, so " + missed.what + readable.List(missed.nodes),
				Remedy: "Reading it needs os:admin.",
			})
		}
	}
}

// refusal is an argument of the API server that a minor version of Talos begins to refuse.
type refusal struct {
	since    version.Minor
	argument string
	// instead says what to know before the argument is removed, a sentence.
	instead string
}

// refusals returns the refusals of the minor versions in the compatibility matrix. With such an argument, Talos
// boots but does not render the API server, so the node does not fall back (MergeDenied in
// internal/app/machined/pkg/controllers/k8s, Talos 1.14.1 against 1.13.9, 2026-11-27). Arguments that are refused
// only together with documents of 1.14 cannot be on a node that runs an earlier version.
func refusals() []refusal {
	return []refusal{{
		since: version.Minor{Major: 1, Minor: 14}, argument: "tls-min-version",
		instead: "Talos 1.14 has its API servers speak TLS 1.3 and nothing older; until a control plane runs it, its API server goes back to the default of its Talos, TLS 1.2.",
	}}
}

// refusing returns the refusal that the upgrade of a control plane meets if its configuration has the argument.
func (p *planner) refusing(node *plannedNode) (refusal, bool) {
	for _, one := range refusals() {
		if node.Role == cluster.ControlPlane && p.enters(node, one.since) {
			return one, true
		}
	}

	return refusal{}, false
}

// enters reports whether the plan takes the node from below a minor version to it or beyond it.
func (p *planner) enters(node *plannedNode, minor version.Minor) bool {
	return node.moves > 0 && !node.Machine.Talos.AtLeast(minor.Major, minor.Minor) && p.target.Talos.AtLeast(minor.Major, minor.Minor)
}

// loadsIPVS reports whether a machine configuration names the kernel modules that kube-proxy needs for IPVS: that
// of IPVS itself and one of a scheduler.
func loadsIPVS(config cluster.MachineConfig) bool {
	return slices.Contains(config.KernelModules, "ip_vs") && slices.ContainsFunc(config.KernelModules, func(module string) bool {
		return slices.Contains([]string{"ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_sh", "ip_vs_mh"}, module)
	})
}

// unloadedSince returns the minor version of Talos from which on the kernel has IPVS as modules that are loaded
// only if a machine configuration names them (release notes of Talos 1.15, hack/release.toml of its main branch
// at ad88231, 2026-11-28).
func unloadedSince() version.Minor { return version.Minor{Major: 1, Minor: 15} }

// usesIPVS reports whether kube-proxy runs in IPVS mode according to the configurations of control planes, and
// whether any of them is known.
func (p *planner) usesIPVS() (uses, known bool) {
	for i := range p.nodes {
		machine := p.nodes[i].Machine
		if p.nodes[i].Role != cluster.ControlPlane || machine == nil || machine.Config == nil {
			continue
		}

		known = true
		uses = uses || machine.Config.IPVS && !machine.Config.Disabled[cluster.Proxy]
	}

	return uses, known
}

// checkConfigurations checks that no control plane loses its API server, and no node its Services, because of
// what machine configurations say.
func (p *planner) checkConfigurations() {
	p.checkAPIServerArguments()

	uses, _ := p.usesIPVS()

	var without []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.Machine != nil && node.Machine.Config != nil && p.enters(node, unloadedSince()) && !loadsIPVS(*node.Machine.Config) {
			without = append(without, node.Name)
		}
	}

	if uses && len(without) > 0 {
		p.add(cluster.Finding{
			Check: cluster.CheckConfiguration, Severity: cluster.Observed,
			Found: fmt.Sprintf("kube-proxy runs in IPVS mode, and Talos %s loads the kernel modules of IPVS only where a machine configuration names them. Those of these nodes do not name ip_vs and a scheduler of it, so no Service can be reached from there after the upgrade: %s",
				unloadedSince(), readable.List(without)),
			Remedy: "Name ip_vs and the module of the scheduler, such as ip_vs_rr, in the machine configuration of every node (machine.kernel.modules), or choose another mode of kube-proxy.",
		})
	}
}

// checkAPIServerArguments refuses arguments of API servers that the next Talos rejects.
func (p *planner) checkAPIServerArguments() {
	for i := range p.nodes {
		node := &p.nodes[i]
		if node.Machine == nil || node.Machine.Config == nil {
			continue
		}

		refused, found := p.refusing(node)
		if !found || !slices.Contains(node.Machine.Config.APIServerArguments, refused.argument) {
			continue
		}

		p.add(cluster.Finding{
			Check: cluster.CheckConfiguration, Severity: cluster.Observed, Node: node.Name,
			Found: fmt.Sprintf("its machine configuration gives the API server the argument %s (cluster.apiServer.extraArgs), which Talos %s refuses: it boots, and this control plane has no API server any more",
				refused.argument, refused.since),
			Remedy: fmt.Sprintf("Take %s out of the machine configuration of every control plane first, and of what generates it. %s", refused.argument, refused.instead),
		})
	}
}

// checkCluster requires the two APIs to report the same machines. Two sites may use the same addresses and names,
// but the boot IDs of their machines differ. One matching node is enough, because Kubernetes reports the boot ID
// of a node that has just rebooted with a delay.
func (p *planner) checkCluster() {
	compared := 0

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.Machine == nil || node.Kube == nil || node.Machine.BootID == "" || node.Kube.BootID == "" {
			continue
		}

		// A node in the middle of its step may just have rebooted.
		if node.Machine.BootID == node.Kube.BootID || node.open {
			return
		}

		compared++
	}

	if compared == 0 {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckIdentity, Severity: cluster.Observed,
		Found:  fmt.Sprintf("the Kubernetes API reports another boot than the Talos API does for each of the %d nodes that both know, as if they belonged to two clusters", compared),
		Remedy: "Check that kubeconfig and talosconfig lead to the same cluster. Right after all nodes have rebooted, wait a minute.",
	})
}

// checkIdentity requires every node with a step to have a machine ID of its own, and the one that it had when its
// upgrade began: the journal identifies machines by it.
func (p *planner) checkIdentity() {
	byID := make(map[string][]*plannedNode, len(p.nodes))

	for i := range p.nodes {
		node := &p.nodes[i]
		id := node.MachineID()

		finding := cluster.Finding{Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name}

		// The entry that an earlier run left for a node that does not answer is found by its name.
		if id == "" && node.hasNodeStep() && (node.Machine != nil || !node.open) {
			finding.Unknown = true
			finding.Found = "neither Talos nor Kubernetes reports its machine ID, by which the journal identifies it"
			finding.Remedy = fmt.Sprintf("Bring its kubelet up, so that the Node object reports it (kubectl get node %s -o jsonpath='{.status.nodeInfo.machineID}').", node.Name)
			p.add(finding)
		}

		before := byID[id]
		byID[id] = append(before, node)

		if other := duplicateOf(node, before); id != "" && other != nil {
			finding.Found, finding.Remedy = sameMachineID(other, node, id)
			p.add(finding)
		}

		if key, entry, found := p.misfiledEntry(node); found {
			finding.Found = fmt.Sprintf("the journal has an unfinished upgrade to Talos %s of a node of this name under %s, and the machine has the ID %s: its STATE partition was wiped, or another machine took its name",
				entry.Target, key, id)
			finding.Remedy = fmt.Sprintf("If the machine with that entry has not been rebooted since %s, when the entry was written, drain and reboot that machine first: %s. Then remove the key %s: kubectl -n kube-system edit configmap talosupgrade-journal.",
				entry.Written.UTC().Format(time.RFC3339), secondInstall, key)
			p.add(finding)
		}
	}
}

// checkDeparted warns if it is unknown whether an image boots, because a node was deleted while it was being
// upgraded with it, or after the run that upgraded it was killed. The upgrade continues without such nodes; autoscalers
// delete nodes that do not come back. A node of the same name that has a step is [planner.misfiledEntry].
func (p *planner) checkDeparted() {
	if p.snapshot.Journal == nil || !slices.ContainsFunc(p.nodes, func(n plannedNode) bool { return n.moves > 0 }) {
		return
	}

	back, names := map[string]bool{}, map[string]bool{}
	for i := range p.nodes {
		node := &p.nodes[i]
		back[node.key], names[node.Name] = true, node.hasNodeStep()
	}

	for _, key := range slices.Sorted(maps.Keys(p.snapshot.Journal.Entries)) {
		entry := p.snapshot.Journal.Entries[key]
		if !entry.Open() || back[key] || !entry.Departed && names[entry.Node] {
			continue
		}

		p.add(cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Advice, Node: entry.Node,
			Found: fmt.Sprintf("it is gone, and was being upgraded with %s: nobody has seen whether that boots; the upgrade goes on without it", entry.Image),
			Remedy: fmt.Sprintf("Find out why its machine did not come back before other nodes get the same image. If it never will, remove the key %s: "+
				"kubectl -n kube-system edit configmap talosupgrade-journal.", key),
		})
	}
}

// secondInstall is why an entry of the journal must not be removed before a boot has shown what was installed.
const secondInstall = "without a boot in between, a second install destroys the system that it can return to"

// duplicateOf returns the first of the earlier nodes with the same machine ID that has another address, if one of
// the two has a step; nil if there is none.
func duplicateOf(node *plannedNode, before []*plannedNode) *plannedNode {
	for _, other := range before {
		if node.Address != other.Address && (node.hasNodeStep() || other.hasNodeStep()) {
			return other
		}
	}

	return nil
}

// sameMachineID returns what is found if two nodes with different addresses have one machine ID, and what to do
// about it. A disk was copied only if both machines answer, in different boots: otherwise one of the Node objects
// may be left over from a machine that has moved.
func sameMachineID(other, node *plannedNode, id string) (found, remedy string) {
	found = fmt.Sprintf("%s at %s and %s at %s have the same machine ID (%s), and the journal could not tell them apart", node.Name, node.Address, other.Name, other.Address, id)

	if !node.answersBeside(other) {
		remedy = "Find out whether both machines exist. If they are one machine that was renamed or has moved, delete the Node object of the name that it no longer registers as " +
			"(talosctl get nodename, kubectl delete node): " + deletedNode + ". If both exist, make both answer, and plan again."

		return found, remedy
	}

	found += ": the disk of one was copied from the other"
	remedy = "Find out which of them is the copy (kubectl get nodes tells their age), and save its machine configuration (talosctl get machineconfig v1alpha1 -o jsonpath='{.spec}'). Leave the other one alone. "

	var workers []string

	for _, machine := range []*plannedNode{other, node} {
		if machine.Role == cluster.Worker {
			workers = append(workers, fmt.Sprintf("%s: talosctl -n %s reset --system-labels-to-wipe STATE --reboot", machine.Name, machine.Address))
		}
	}

	if len(workers) > 0 {
		remedy += "If the copy is a worker, then wipe its STATE, which loses its identity and its configuration; it waits in maintenance mode until it is given the configuration again (" +
			strings.Join(workers, "; ") + "). "
	}

	if len(workers) < 2 {
		remedy += "If the copy is a control plane, wipe nothing, because a reset may take a member out of etcd: shut it down, delete its Node object, and set up another machine in its place. "
	}

	return found, strings.TrimSpace(remedy)
}

// answersBeside reports whether both machines answer and are in different boots, which proves that there are two.
func (n *plannedNode) answersBeside(other *plannedNode) bool {
	return n.Machine != nil && other.Machine != nil && n.Machine.BootID != "" && other.Machine.BootID != "" && n.Machine.BootID != other.Machine.BootID
}

// deletedNode says what deleting a Node object does.
const deletedNode = "that leaves the machine alone, and Kubernetes deletes the pods that are bound to the Node object"

// checkStale refuses to begin while one machine has several Node objects: those under its old names look like
// nodes that are down.
func (p *planner) checkStale() {
	for _, stale := range p.snapshot.Stale {
		p.add(cluster.Finding{
			Check: cluster.CheckNodesReady, Severity: cluster.Observed, Node: stale.Name,
			Found:  fmt.Sprintf("the Node object is stale: the machine at its address %s registers as %s", stale.Address, stale.Registered),
			Remedy: fmt.Sprintf("Delete it (kubectl delete node %s): %s.", stale.Name, deletedNode),
		})
	}

	byAddress := make(map[string][]*plannedNode, len(p.nodes))

	for i := range p.nodes {
		if node := &p.nodes[i]; node.Kube != nil && node.Address != "" {
			byAddress[node.Address] = append(byAddress[node.Address], node)
		}
	}

	for _, address := range slices.Sorted(maps.Keys(byAddress)) {
		if nodes := byAddress[address]; len(nodes) > 1 {
			p.add(sharedAddress(address, nodes))
		}
	}
}

// sharedAddress returns the finding about several Node objects with one address if it is unknown which of them
// belongs to the machine.
func sharedAddress(address string, nodes []*plannedNode) cluster.Finding {
	var (
		names, ready []string
		registered   string
	)

	for _, node := range nodes {
		if names = append(names, node.Name); node.Kube.Ready {
			ready = append(ready, node.Name)
		}

		if node.Machine != nil {
			registered = cmp.Or(registered, node.Machine.NodeName)
		}
	}

	finding := cluster.Finding{Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: names[0]}

	if len(ready) > 1 {
		finding.Found = fmt.Sprintf("the Node objects %s have one address (%s), and more than one of them is Ready, so that nobody can tell which machine answers there", readable.List(names), address)
		finding.Remedy = "Give each machine an address of its own (kubectl get nodes -o wide). If one of them was renamed just now, wait until the Node object of its old name is NotReady."

		return finding
	}

	finding.Found = fmt.Sprintf("the Node objects %s have one address (%s), so that all but one of them are stale", readable.List(names), address)

	switch {
	case registered != "":
		finding.Found += fmt.Sprintf("; the machine there registers as %s", registered)
	case len(ready) == 1:
		finding.Found += fmt.Sprintf("; the machine there does not say which one it registers as, and %s alone is Ready", ready[0])
	default:
		finding.Found += "; the machine there does not say which one it registers as"
	}

	finding.Remedy = fmt.Sprintf("Ask the machine which one it registers as (talosctl -n %s get nodename; bring it up first if it does not answer), then delete the others (kubectl delete node): %s.", address, deletedNode)

	return finding
}

// misfiledEntry returns an unfinished upgrade that may be that of a node with a step, but is stored under another
// machine ID.
func (p *planner) misfiledEntry(node *plannedNode) (key string, entry cluster.Entry, found bool) {
	if !node.hasNodeStep() {
		return "", cluster.Entry{}, false
	}

	return p.unclaimed.StrayOf(*node.Node, node.key)
}

// Attributes that findings point at.
const (
	attributeTalos        = "talos_version"
	attributeKubernetes   = "kubernetes_version"
	attributeImage        = "installer_image"
	attributeDrain        = "drain"
	attributeKubernetesOf = "kubernetes"
	attributeOverrides    = "node_overrides"
	attributeCanary       = "canary"
	attributeIntermediate = "intermediate_versions"

	attributeCanarySelector    = "canary_selector"
	attributeSelectorOverrides = "selector_overrides"
	attributePools             = "pools"
)

// Fields of one entry of node_overrides, selector_overrides or pools.
const (
	fieldImage          = cluster.Field("installer_image")
	fieldRebootMode     = cluster.Field("reboot_mode")
	fieldHold           = cluster.Field("hold")
	fieldSelector       = cluster.Field("selector")
	fieldMaxUnavailable = cluster.Field("max_unavailable")
)

// adminRole is the only role of Talos that may upgrade.
const adminRole = "os:admin"

// checkInventory reports what could not be observed or does not add up.
func (p *planner) checkInventory() {
	observed := &p.snapshot

	if observed.KubernetesError != nil {
		cause := ""
		if p.lesserRole() && errors.Is(observed.KubernetesError, cluster.ErrNoKubeconfig) && errors.Is(observed.KubernetesError, cluster.ErrDenied) {
			cause = cluster.CheckRoles
		}

		p.add(cluster.Finding{
			Check: cluster.CheckKubernetesAPI, Severity: cluster.Observed, Err: observed.KubernetesError, Cause: cause,
			Found:  "the Kubernetes API did not answer: " + observed.KubernetesError.Error(),
			Remedy: "Make the Kubernetes API answer and apply again: without it nothing can be cordoned, drained or recorded.",
		})
	}

	if observed.DiscoveryError != nil && observed.KubernetesError == nil {
		p.add(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Advice, Unknown: true, Err: observed.DiscoveryError,
			Found:  "discovery did not list the members, so only nodes that are registered in Kubernetes are known: " + observed.DiscoveryError.Error(),
			Remedy: "Look at discovery (talosctl get members, cluster.discovery in the machine configurations): a machine that is in neither list is not upgraded.",
		})
	}

	// Every cluster has one. If none were known, finding nothing to do would claim that everything is done.
	if !slices.ContainsFunc(p.nodes, func(node plannedNode) bool { return node.Role == cluster.ControlPlane }) {
		p.add(cluster.Finding{
			Check: cluster.CheckEtcdMembers, Severity: cluster.Observed,
			Found:  "no control plane was found: neither discovery nor Kubernetes lists one that is there",
			Remedy: "Check that the endpoints belong to this cluster and that its control planes are listed (talosctl get members, kubectl get nodes).",
		})
	}

	if len(observed.Foreign) > 0 {
		p.add(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Advice,
			Found:  "not running Talos and left alone: " + readable.List(observed.Foreign),
			Remedy: "Upgrade them with the tools of their own system; nothing here waits for them.",
		})
	}

	for i := range observed.Nodes {
		switch node := &observed.Nodes[i]; {
		case node.Left():
			p.add(cluster.Finding{
				Check: cluster.CheckNodesReady, Severity: cluster.Advice, Node: node.Name, Err: node.Unreachable,
				Found: fmt.Sprintf("discovery still lists this worker, but it has no Node object in Kubernetes and its Talos API at %s does not answer; it is taken for removed and left alone",
					node.Address),
				Remedy: "Do nothing if it was removed: discovery forgets it within 30 minutes. Otherwise bring the machine back, and it is upgraded with the others.",
			})
		case node.Gone:
			p.add(cluster.Finding{
				Check: cluster.CheckNodesReady, Severity: cluster.Advice, Node: node.Name,
				Found:  "the node is registered but gone: NotReady for more than 5 minutes and unknown to discovery; it is left alone",
				Remedy: "Delete its Node object if it does not come back.",
			})
		}
	}

	for i := range p.nodes {
		p.checkPresence(&p.nodes[i])
	}
}

// checkPresence requires an answer from every node, except for one that an earlier run may have rebooted, and for
// a held worker. A worker that is held only because its labels could not be read is checked, because that is the
// reason to look for.
func (p *planner) checkPresence(node *plannedNode) {
	switch {
	case node.open && !p.target.Talos.IsZero(), node.held && node.Role == cluster.Worker && !p.policy.Selected.Held[node.Name].Unread:
		return
	case cluster.Unaccepted(node.Unreachable) != "":
		p.add(Unaccepted(*node.Node))
	case node.Machine == nil:
		p.add(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Node: node.Name, Err: node.Unreachable,
			Found:  fmt.Sprintf("the Talos API of this %s at %s did not answer: %v", roleName(node.Role), node.Address, node.Unreachable),
			Remedy: p.broughtBack(node),
		})
	case node.Machine.TalosTag != "" && !node.held:
		p.add(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Permanent, Node: node.Name,
			Found: fmt.Sprintf("this %s at %s runs Talos %q, which is not a semantic version, so that nobody can tell whether it is older or newer than others",
				roleName(node.Role), node.Address, node.Machine.TalosTag),
			Remedy: fmt.Sprintf("Upgrade it as its vendor says, and leave it alone here: node_overrides = { %q = { hold = true } }.", node.Name),
		})
	case node.Machine.Talos.IsZero() && !node.held:
		p.add(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Unknown: true, Node: node.Name,
			Found:  fmt.Sprintf("this %s at %s does not say which version of Talos it runs", roleName(node.Role), node.Address),
			Remedy: fmt.Sprintf("Find out what it runs (talosctl -n %s version).", node.Address),
		})
	case node.Kube == nil && p.snapshot.KubernetesError == nil:
		p.add(cluster.Finding{
			Check: cluster.CheckNodesReady, Severity: cluster.Observed, Node: node.Name,
			Found:  "discovery lists the machine, but it has no Node object in Kubernetes",
			Remedy: fmt.Sprintf("Let it join (talosctl -n %s logs kubelet). If it is to be no node of this cluster, %s.", node.Address, takenOut(node.Role)),
		})
	}
}

// broughtBack says what to do about a node that does not answer.
func (p *planner) broughtBack(node *plannedNode) string {
	if errors.Is(node.Unreachable, cluster.ErrForeign) {
		return fmt.Sprintf("Find out why Talos did not find its configuration (its console, talosctl get disks --insecure --nodes %s), and start it anew; give it a configuration only when you know. ", node.Address) + p.removedForGood(node)
	}

	return "Bring the node back. " + p.removedForGood(node)
}

// removedForGood says how to remove a node whose machine never comes back. A removed etcd member cannot rejoin
// with its data.
func (p *planner) removedForGood(node *plannedNode) string {
	remedy := "If its machine is gone for good, kubectl delete node " + node.Name
	if node.Kube == nil && p.snapshot.KubernetesError == nil {
		remedy = "If its machine is gone for good, wait until discovery forgets it, which takes 30 minutes at most"
	}

	if node.Role == cluster.ControlPlane {
		remedy += ", and remove its member (talosctl etcd members, talosctl etcd remove-member): a removed member can rejoin only with an empty disk"
	}

	return remedy + "."
}

// takenOut says how a machine that should not be part of the cluster leaves it. Switching a control plane off
// would leave its member in etcd.
func takenOut(role cluster.Role) string {
	if role == cluster.ControlPlane {
		return "talosctl reset lets its member leave etcd, and wipes the machine"
	}

	return "switch it off"
}

// Unaccepted returns the finding about a node that does not accept the credentials. Its text is the same for
// every node, so that people read it once.
func Unaccepted(node cluster.Node) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Node: node.Name, Err: node.Unreachable,
		Found:  "its Talos API does not accept the credentials: " + cluster.Unaccepted(node.Unreachable),
		Remedy: "Use a talosconfig of this cluster, and renew its certificate if it expired; waiting does not help.",
	}
}

// roleName returns the role as people write it.
func roleName(role cluster.Role) string {
	if role == cluster.ControlPlane {
		return "control plane"
	}

	return "worker"
}

// checkExternal refuses to move nodes while somebody else is taking one of them down. Nodes that an earlier run
// of ours took down are in the journal. A node under our cordon is accepted even with the annotation
// talos.dev/cordoned, which may be a leftover.
func (p *planner) checkExternal() {
	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held || node.open {
			continue
		}

		finding := cluster.Finding{Check: cluster.CheckExternalChanges, Severity: cluster.Observed, Node: node.Name}
		wait, then := "Wait until it is done", "or find out who upgrades or reboots the node"

		switch {
		case node.Machine != nil && installed(node.Machine.Stage):
			finding.Found = fmt.Sprintf("the machine is %s, and no run of this provider asked for that: %s", node.Machine.Stage, likelyOwners)
			then = oneOwner
		case node.Machine != nil && node.Machine.UpgradePending && !node.Machine.Settled():
			finding.Found = fmt.Sprintf("%s. No run of this provider did that: %s", health.UnconfirmedFound(*node.Machine), likelyOwners)
			finding.Remedy = health.UnconfirmedRemedy(*node.Machine, node.Address) + " " + upper(oneOwner) + "."
		case node.Machine != nil && health.Leaving(node.Machine.Stage):
			finding.Found = fmt.Sprintf("the machine is %s, and no run of this provider asked for that", node.Machine.Stage)
		case node.Kube != nil && node.Kube.CordonedByTalos && node.Kube.CordonedBy == "":
			finding.Found = "the machine cordoned its own node (annotation talos.dev/cordoned), as in an upgrade, a shutdown or a reset that no run of this provider asked for (where it is an upgrade, " + likelyOwners + ")"
		default:
			continue
		}

		if finding.Remedy == "" {
			finding.Remedy = fmt.Sprintf("%s (talosctl -n %s get machinestatus), %s.", wait, node.Address, then)
		}

		p.add(finding)
	}
}

// likelyOwners are the programs that install Talos on nodes, other than this one.
const likelyOwners = "likely talosctl upgrade, a talos_machine of the provider siderolabs/talos, Omni or tuppr"

// oneOwner says what to do about that.
const oneOwner = "then let one program alone upgrade this cluster: give the other one the same target, or switch it off"

// installed reports whether an installer runs on a machine in that stage.
func installed(stage cluster.Stage) bool {
	return stage == cluster.StageUpgrading || stage == cluster.StageInstalling
}

// checkOwnNode refuses to upgrade Talos on the node that this process runs on, which is recognised by its boot
// ID. If Talos runs in containers, all nodes share the kernel of their host.
func (p *planner) checkOwnNode() {
	for i := range p.nodes {
		node := &p.nodes[i]
		takesDown := func(s Step) bool { return s.Node == node.Name && s.Component == "" && !s.Done }

		if !node.booted(p.policy.OwnBootID) || node.contained() || !slices.ContainsFunc(p.made.Steps, takesDown) {
			continue
		}

		p.add(cluster.Finding{
			Check: cluster.CheckOwnNode, Severity: cluster.Observed, Node: node.Name,
			Found: "the provider runs on this node itself, as the boot ID of its kernel tells, and would be drained and rebooted in the middle of its work",
			Remedy: fmt.Sprintf("Run it from somewhere else, or hold this node (node_overrides = { %q = { hold = true } }) and upgrade it in another run, from elsewhere. "+
				`Where a run that is evicted is started again on another node, preflight = { skip = ["own-node"] } accepts that.`, node.Name),
		})
	}
}

// checkPressure checks the pressure conditions of the nodes with a step. A full disk has no room for an image;
// the other conditions are for people to judge. What an earlier run began is finished in any case.
func (p *planner) checkPressure() {
	var pressed []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.steps == 0 || node.open || node.Kube == nil {
			continue
		}

		for _, pressure := range node.Kube.Pressure {
			if pressure != cluster.DiskPressure {
				pressed = append(pressed, fmt.Sprintf("%s (%s)", node.Name, pressure))
			}
		}

		if slices.Contains(node.Kube.Pressure, cluster.DiskPressure) {
			p.add(cluster.Finding{
				Check: cluster.CheckDiskSpace, Severity: cluster.Observed, Node: node.Name,
				Found:  "the kubelet reports DiskPressure: it deletes images and evicts pods, and an image that is pulled would not stay",
				Remedy: fmt.Sprintf("Make room on its disk (kubectl describe node %s, talosctl -n %s mounts).", node.Name, node.Address),
			})
		}
	}

	if len(pressed) > 0 {
		p.add(cluster.Finding{
			Check: cluster.CheckNodesReady, Severity: cluster.Advice,
			Found:  "kubelets are under pressure: " + readable.List(pressed),
			Remedy: "Relieve the nodes, or expect that pods are evicted from them and do not fit there.",
		})
	}
}
