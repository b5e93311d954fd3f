// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	schematicA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	schematicB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	generic    = "ghcr.io/siderolabs/installer"
	adminRole  = "os:admin"
)

// scene is a case under construction: a healthy cluster on Talos 1.12.6 and
// Kubernetes 1.34.2 whose target is Talos 1.13.4.
type scene struct {
	snapshot cluster.Observation
	target   cluster.Target
	policy   cluster.Policy
}

// newScene returns a scene with its nodes in the order in which observations list them.
func newScene(controlPlanes, workers int) *scene {
	s := &scene{
		snapshot: cluster.Observation{ID: "cluster", Journal: &cluster.Journal{Entries: map[string]cluster.Entry{}}, Roles: []string{adminRole}},
		target:   cluster.Target{Talos: version.MustParse("1.13.4")},
		policy:   cluster.DefaultPolicy(),
	}

	for i := range workers {
		s.add(cluster.Worker, fmt.Sprintf("worker-%d", i+1), fmt.Sprintf("10.0.1.%d", i+1))
	}

	for i := range controlPlanes {
		s.add(cluster.ControlPlane, fmt.Sprintf("cp-%d", i+1), fmt.Sprintf("10.0.0.%d", i+1))
	}

	return s.elect()
}

func (s *scene) add(role cluster.Role, name, address string) {
	images, versions, pods := map[cluster.Component]string{}, map[cluster.Component]version.Version{}, map[cluster.Component]cluster.ComponentPod{}

	for _, component := range cluster.Components(role) {
		versions[component] = version.MustParse("1.34.2")
		if component != cluster.Proxy || role == cluster.ControlPlane {
			images[component] = image.DefaultComponent(string(component)) + ":v1.34.2"
		}

		if component.Static() {
			pods[component] = cluster.ComponentPod{Node: name, Component: component, Image: images[component], Ready: true}
		}
	}

	s.snapshot.Nodes = append(s.snapshot.Nodes, cluster.Node{
		Name: name, Role: role, Address: address, Member: true, Versions: versions, Pods: pods,
		Machine: &cluster.Machine{
			Address: address, NodeName: name, MachineID: "id-" + name, UUID: "uuid-" + name, Role: role, Talos: version.MustParse("1.12.6"),
			Platform: "metal", BootID: "boot-" + name, Stage: cluster.StageRunning, Ready: true,
			Config: &cluster.MachineConfig{InstallImage: generic + ":v1.12.6", Images: images},
		},
		Kube: &cluster.KubeNode{
			Name: name, Addresses: []string{address}, ControlPlane: role == cluster.ControlPlane, Ready: true,
			MachineID: "id-" + name, SystemUUID: "uuid-" + name, BootID: "boot-" + name, Talos: true,
		},
	})
}

// elect gives every control plane the view of an etcd whose members are the
// control planes.
func (s *scene) elect() *scene {
	var members []cluster.EtcdMember

	for _, node := range s.snapshot.ControlPlanes() {
		members = append(members, cluster.EtcdMember{ID: uint64(len(members) + 1), Name: node.Name, PeerAddresses: []string{node.Address}})
	}

	next := uint64(0)

	for i := range s.snapshot.Nodes {
		if s.snapshot.Nodes[i].Role == cluster.ControlPlane {
			next++
			s.snapshot.Nodes[i].Etcd = &cluster.EtcdView{Members: members, Status: cluster.EtcdStatus{MemberID: next, Leader: 1}}
		}
	}

	return s
}

func (s *scene) node(name string) *cluster.Node {
	for i := range s.snapshot.Nodes {
		if s.snapshot.Nodes[i].Name == name {
			return &s.snapshot.Nodes[i]
		}
	}

	panic("no node " + name)
}

// runs puts the named nodes, or all if none is named, on a Talos version.
func (s *scene) runs(talos string, names ...string) *scene {
	for i := range s.snapshot.Nodes {
		node := &s.snapshot.Nodes[i]
		if node.Machine == nil || (len(names) > 0 && !slices.Contains(names, node.Name)) {
			continue
		}

		node.Machine.Talos = version.MustParse(talos)
	}

	return s
}

// built puts all nodes on a factory image.
func (s *scene) built(schematic string) *scene {
	for i := range s.snapshot.Nodes {
		machine := s.snapshot.Nodes[i].Machine
		machine.Schematic = schematic
		machine.Config.InstallImage = "factory.talos.dev/metal-installer/" + schematic + ":" + machine.Talos.Tag()
	}

	return s
}

// kubernetes puts all components on a version: what runs, and what is named.
func (s *scene) kubernetes(running string) *scene {
	for i := range s.snapshot.Nodes {
		node := &s.snapshot.Nodes[i]
		for component := range node.Versions {
			s.component(node.Name, component, running)
		}
	}

	return s
}

// component puts one component of a node on a version: what runs, and what is named if the node names it.
func (s *scene) component(node string, component cluster.Component, running string) *scene {
	s.runsComponent(node, component, running)

	if machine := s.node(node).Machine; machine != nil && machine.Config != nil && machine.Config.Images[component] != "" {
		repository, _, _ := strings.Cut(machine.Config.Images[component], ":v")
		machine.Config.Images[component] = repository + ":v" + running
	}

	return s
}

// runsComponent changes only what runs.
func (s *scene) runsComponent(node string, component cluster.Component, running string) *scene {
	s.node(node).Versions[component] = version.MustParse(running)

	return s
}

// namesComponent changes only what the machine configuration names.
func (s *scene) namesComponent(node string, component cluster.Component, reference string) *scene {
	s.node(node).Machine.Config.Images[component] = reference

	return s
}

// pods puts the pods of kube-proxy on a version.
func (s *scene) pods(running string) *scene {
	for i := range s.snapshot.Nodes {
		s.runsComponent(s.snapshot.Nodes[i].Name, cluster.Proxy, running)
	}

	return s
}

// mirrored makes every component come from one registry.
func (s *scene) mirrored(registry, suffix string) *scene {
	for i := range s.snapshot.Nodes {
		for component := range s.snapshot.Nodes[i].Machine.Config.Images {
			s.namesComponent(s.snapshot.Nodes[i].Name, component, registry+"/"+string(component)+":v1.34.2"+suffix)
		}
	}

	return s
}

// wants demands a repository for a component.
func (s *scene) wants(component cluster.Component, repository string) *scene {
	if s.policy.Kubernetes.Images == nil {
		s.policy.Kubernetes.Images = map[cluster.Component]string{}
	}

	s.policy.Kubernetes.Images[component] = repository

	return s
}

// due adds a sync of the manifests that is still to come to the journal.
func (s *scene) due() *scene {
	s.snapshot.Journal.Manifests = &cluster.ManifestsDue{Run: "run-1"}

	return s
}

// unsynced leaves the manifests alone.
func (s *scene) unsynced() *scene {
	s.policy.Kubernetes.Manifests.Sync = false

	return s
}

// unhurried does not wait for what a sync of the manifests changes.
func (s *scene) unhurried() *scene {
	s.policy.Kubernetes.Manifests.Timeout = 0

	return s
}

// disabled switches a component off, in the machine configuration of the node.
func (s *scene) disabled(node string, components ...cluster.Component) *scene {
	config := s.node(node).Machine.Config
	config.Disabled = map[cluster.Component]bool{}

	for _, component := range components {
		config.Disabled[component] = true
		delete(config.Images, component)
	}

	return s
}

// ailing makes a pod of the node not Ready, for a reason.
func (s *scene) ailing(node string, component cluster.Component, trouble string) *scene {
	s.node(node).Pods[component] = cluster.ComponentPod{Node: node, Component: component, Image: s.node(node).Machine.Config.Images[component], Trouble: trouble}

	return s
}

// podless removes a static pod of the node.
func (s *scene) podless(node string, component cluster.Component) *scene {
	delete(s.node(node).Pods, component)
	delete(s.node(node).Versions, component)

	return s
}

// outdated makes Kubernetes show a pod of the node as it was before the boot.
func (s *scene) outdated(node string, component cluster.Component) *scene {
	pod := s.node(node).Pods[component]
	pod.Ready, pod.Outdated = false, true
	s.node(node).Pods[component] = pod

	return s
}

// unmanaged leaves Talos alone.
func (s *scene) unmanaged() *scene {
	s.target.Talos = version.Version{}

	return s
}

// proxyless removes kube-proxy from the whole cluster.
func (s *scene) proxyless() *scene {
	for i := range s.snapshot.Nodes {
		node := &s.snapshot.Nodes[i]
		delete(node.Versions, cluster.Proxy)

		if node.Role == cluster.ControlPlane {
			s.withoutProxy(node.Name)
		}
	}

	return s
}

func (s *scene) notReady(name string) *scene {
	s.node(name).Kube.Ready = false

	return s
}

// cordoned cordons a node for a run of ours, or for somebody else if run is empty.
func (s *scene) cordoned(name, run string) *scene {
	s.node(name).Kube.Unschedulable, s.node(name).Kube.CordonedBy = true, run

	return s
}

func (s *scene) silent(name string) *scene {
	s.node(name).Machine = nil
	s.node(name).Etcd = nil
	s.node(name).Unreachable = fmt.Errorf("dial tcp: %w", cluster.ErrUnreachable)

	return s
}

func (s *scene) entry(name string, phase cluster.Phase, bootID string) *scene {
	s.snapshot.Journal.Entries["id-"+name] = cluster.Entry{
		Node: name, Phase: phase, Attempt: 1, BootID: bootID, Image: generic + ":v1.13.4",
		Target: s.target.Talos, Previous: version.MustParse("1.12.6"), Run: "run-1",
	}

	return s
}

// share reads a max_unavailable.
func share(text string) cluster.Share {
	parsed, err := cluster.ParseShare(text)
	if err != nil {
		panic(err)
	}

	return parsed
}

// departed marks the entry of a node as one that was deleted.
func (s *scene) departed(name string) *scene {
	entry := s.snapshot.Journal.Entries["id-"+name]
	entry.Departed = true
	s.snapshot.Journal.Entries["id-"+name] = entry

	return s
}

func (s *scene) make() plan.Plan { return plan.Make(s.snapshot, s.target, s.policy) }

// said makes the plan, and checks how its findings are worded.
func (s *scene) said(t *testing.T) plan.Plan {
	t.Helper()

	made := s.make()
	wording.NoteFindings(t, made.Findings)

	return made
}

// stepNames returns the nodes that have turns; a sync of the manifests belongs to no node.
func stepNames(made plan.Plan) string {
	names := make([]string, 0, len(made.Steps))

	for _, step := range made.Steps {
		if step.Component != cluster.Manifests {
			names = append(names, step.Node)
		}
	}

	return strings.Join(names, " ")
}

func find(findings []cluster.Finding, check string) (cluster.Finding, bool) {
	for _, finding := range findings {
		if finding.Check == check {
			return finding, true
		}
	}

	return cluster.Finding{}, false
}

// wantOrder compares the nodes with steps, in order, and those without.
func wantOrder(t *testing.T, made plan.Plan, steps, atTarget string) {
	t.Helper()

	if got := stepNames(made); got != steps {
		t.Errorf("steps: %q, want %q", got, steps)
	}

	if got := strings.Join(made.AtTarget, " "); got != atTarget {
		t.Errorf("at target: %q, want %q", got, atTarget)
	}
}

// errAway stands for any error of a port.
var errAway = errors.New("connection refused")

// carryOut changes the cluster as a successful turn does.
func (s *scene) carryOut(step plan.Step) {
	if step.Component == cluster.Manifests {
		s.sync(step.To)

		return
	}

	// A sync of the manifests has to follow what changes.
	if s.snapshot.Journal != nil && !s.unrendered() {
		s.due()
	}

	node := s.node(step.Node)

	if step.Component != "" {
		s.restart(node, step)

		return
	}

	machine := cluster.Machine{MachineID: step.Key, Role: node.Role, Platform: "metal", Config: s.pinned(*node)}
	if node.Machine != nil {
		machine = *node.Machine
	}

	machine.Talos = step.To
	if !step.Done && (s.target.InstallerImage == overrideB || s.policy.Images[step.Node] == overrideB) {
		machine.Schematic = schematicB
	}

	node.Machine, node.Unreachable = &machine, nil

	if s.snapshot.Journal != nil {
		delete(s.snapshot.Journal.Entries, step.Key)
	}

	if node.Kube != nil {
		node.Kube.Ready = true
		if node.Kube.CordonedBy != "" {
			node.Kube.Unschedulable, node.Kube.CordonedBy = false, ""
		}
	}
}

// restart sets another image for a component, which then runs from it. The pods of kube-proxy follow with the
// manifests.
func (s *scene) restart(node *cluster.Node, step plan.Step) {
	if step.Component != cluster.Proxy {
		node.Versions[step.Component] = step.To
	}

	if node.Machine == nil || node.Machine.Config == nil {
		return
	}

	named := maps.Clone(node.Machine.Config.Images)
	if named == nil {
		named = map[cluster.Component]string{}
	}

	named[step.Component] = step.Image
	if step.Image == "" {
		named[step.Component] = s.reference(step.Component, step.To)
	}

	node.Machine.Config.Images = named
}

// pinned returns the configuration of a node that pins what runs. Pods of kube-proxy that nothing syncs do not show
// what is named.
func (s *scene) pinned(node cluster.Node) *cluster.MachineConfig {
	named := map[cluster.Component]string{}

	for component, running := range node.Versions {
		if left := !s.policy.Kubernetes.Manifests.Sync || s.unrendered(); left && component == cluster.Proxy {
			running = version.Highest(running, s.target.Kubernetes)
		}

		if component.Configured(node.Role) {
			named[component] = s.reference(component, running)
		}
	}

	return &cluster.MachineConfig{InstallImage: generic + ":v1.12.6", Images: named}
}

// reference returns an image that satisfies the configuration.
func (s *scene) reference(component cluster.Component, v version.Version) string {
	repository := image.DefaultComponent(string(component))
	if wanted := s.policy.Kubernetes.Images[component]; wanted != "" {
		repository = wanted
	}

	return repository + ":" + v.Tag()
}

// unrendered reports whether no control plane may render the manifests.
func (s *scene) unrendered() bool {
	controlPlanes := s.snapshot.ControlPlanes()

	return len(controlPlanes) > 0 && !slices.ContainsFunc(controlPlanes, func(node cluster.Node) bool { return !s.policy.Hold[node.Name] })
}

// sync gives every node the kube-proxy that the control planes name. If they do not name one, pods that lag get the
// version.
func (s *scene) sync(to version.Version) {
	if s.snapshot.Journal != nil {
		s.snapshot.Journal.Manifests = nil
	}

	var named version.Version

	for _, node := range s.snapshot.ControlPlanes() {
		if node.Machine == nil || node.Machine.Config == nil || s.policy.Hold[node.Name] {
			continue
		}

		if _, tag, found := strings.Cut(node.Machine.Config.Images[cluster.Proxy], ":v"); found {
			named = version.Lowest(named, version.MustParse(tag))
		}
	}

	for i := range s.snapshot.Nodes {
		pod, runs := s.snapshot.Nodes[i].Versions[cluster.Proxy]

		switch {
		case !runs:
		case !named.IsZero():
			s.snapshot.Nodes[i].Versions[cluster.Proxy] = named
		case pod.Minor().Compare(to.Minor()) < 0 || to.Equal(s.target.Kubernetes):
			s.snapshot.Nodes[i].Versions[cluster.Proxy] = to
		}
	}
}
