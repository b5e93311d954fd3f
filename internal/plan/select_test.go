// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// has is a selector for nodes with a label.
type has string

func (h has) Matches(labels map[string]string) bool { return labels[string(h)] != "" }

func (h has) String() string { return string(h) }

// named returns a worker with labels; a worker without a Node object if labels is nil.
func named(name string, labels ...string) cluster.Node {
	node := cluster.Node{Name: name, Role: cluster.Worker, Machine: &cluster.Machine{Talos: version.MustParse("1.13.2")}, Kube: &cluster.KubeNode{Ready: true, Labels: map[string]string{}}}
	for _, label := range labels {
		node.Kube.Labels[label] = "yes"
	}

	return node
}

func unnamed(name string) cluster.Node {
	node := named(name)
	node.Kube = nil

	return node
}

func pool(name string, selector cluster.Selector) cluster.Pool {
	return cluster.Pool{Name: name, Selector: selector, MaxUnavailable: cluster.OneAtATime()}
}

func override(selector cluster.Selector, image string) cluster.SelectorOverride {
	return cluster.SelectorOverride{Selector: selector, Hold: image == "", Image: image}
}

func TestSelect_ChoosesWhatLabelsSay(t *testing.T) {
	t.Parallel()

	controlPlane := named("cp-0", "first", "storage", "held")
	controlPlane.Role = cluster.ControlPlane

	policy := cluster.DefaultPolicy()
	policy.CanarySelector, policy.Canary = has("first"), []string{"worker-3"}
	policy.SelectorOverrides = []cluster.SelectorOverride{override(has("held"), ""), override(has("gpu"), "example.com/gpu/installer")}
	policy.Pools = []cluster.Pool{pool("storage", has("storage"))}
	policy.Images = map[string]string{"worker-2": "example.com/own/installer"}
	policy.SelectorOverrides = append(policy.SelectorOverrides, cluster.SelectorOverride{Selector: has("gpu"), RebootMode: cluster.RebootPowercycle})
	policy.RebootModes = map[string]cluster.RebootMode{"worker-2": cluster.RebootDefault}

	observed := cluster.Observation{Nodes: []cluster.Node{
		named("worker-0", "first", "storage"), named("worker-1", "held", "storage"), named("worker-2", "gpu"), named("worker-3", "gpu"), unnamed("worker-4"), controlPlane,
	}}

	got, findings := plan.Select(observed, policy)
	if len(findings) > 0 {
		t.Errorf("got %+v, want no findings", findings)
	}

	if want := []string{"worker-3", "worker-0"}; !slices.Equal(got.Canaries(), want) {
		t.Errorf("the canaries are %v, want %v", got.Canaries(), want)
	}

	for name, want := range map[string]bool{"worker-0": false, "worker-1": true, "worker-2": false, "worker-4": true, "cp-0": true} {
		if got.Holds(name) != want {
			t.Errorf("%s is held: %t, want %t", name, got.Holds(name), want)
		}
	}

	for name, want := range map[string]string{"worker-2": "example.com/own/installer", "worker-3": "example.com/gpu/installer", "worker-0": ""} {
		if image := got.Image(name); image != want {
			t.Errorf("the image of %s is %q, want %q", name, image, want)
		}
	}

	for name, want := range map[string]cluster.RebootMode{
		"worker-3": cluster.RebootPowercycle, "worker-2": cluster.RebootDefault, "worker-0": cluster.RebootDefault,
	} {
		if mode := got.RebootModeOf(name); mode != want {
			t.Errorf("%s restarts by %q, want %q", name, mode, want)
		}
	}

	storage := got.Selected.Pools[0]
	if !slices.Equal(storage.Workers, []string{"worker-0", "worker-1"}) || !slices.Equal(storage.Unread, []string{"worker-4"}) || !storage.Counts("worker-4") || storage.Has("worker-4") {
		t.Errorf("the pool is %+v", storage)
	}

	if of := got.Selected.PoolOf("cp-0"); of != "" {
		t.Errorf("a control plane is in the pool %s", of)
	}
}

// TestSelect_KeepsWhatEarlierLooksChose, and chooses nothing if the Kubernetes API is away.
func TestSelect_KeepsWhatEarlierLooksChose(t *testing.T) {
	t.Parallel()

	policy := cluster.DefaultPolicy()
	policy.CanarySelector = has("first")
	policy.SelectorOverrides = []cluster.SelectorOverride{override(has("held"), "")}

	away := cluster.Observation{Nodes: []cluster.Node{unnamed("worker-0")}, KubernetesError: errors.New("connection refused")}
	if got, findings := plan.Select(away, policy); got.Holds("worker-0") || len(findings) > 0 {
		t.Errorf("without Kubernetes it chose %+v and found %v", got.Selected, findings)
	}

	policy, _ = plan.Select(cluster.Observation{Nodes: []cluster.Node{named("worker-0", "held"), named("worker-1", "first")}}, policy)
	policy, _ = plan.Select(cluster.Observation{Nodes: []cluster.Node{named("worker-0"), named("worker-1")}}, policy)
	policy, _ = plan.Select(away, policy)

	if !policy.Holds("worker-0") || !policy.Selected.Held["worker-0"].Earlier || !slices.Equal(policy.Canaries(), []string{"worker-1"}) {
		t.Errorf("got %+v, want worker-0 held and worker-1 a canary", policy.Selected)
	}

	if by := plan.HeldBy(policy, "worker-0"); by != `selector_overrides "held" matched it when this run looked earlier` {
		t.Errorf("it is held by %s", by)
	}

	// The node was a canary before it was held, and stays both: only a contradiction within one look is a finding.
	policy, findings := plan.Select(cluster.Observation{Nodes: []cluster.Node{named("worker-1", "first", "held"), named("worker-0", "first")}}, policy)
	if !policy.Holds("worker-1") || len(findings) != 1 || findings[0].Node != "worker-0" {
		t.Errorf("got %+v, want a finding about worker-0 alone", findings)
	}
}

func TestSelect_ContradictionsAreFindings(t *testing.T) {
	t.Parallel()

	for says, given := range map[string]struct {
		change   func(*cluster.Policy)
		severity cluster.Severity
	}{
		"the node is in more than one pool: a (disk), b (storage)": {severity: cluster.Permanent, change: func(p *cluster.Policy) {
			p.Pools = []cluster.Pool{pool("a", has("disk")), pool("b", has("storage"))}
		}},
		`the selector "disk" gives the node the installer image x, and "storage" gives it y`: {severity: cluster.Permanent, change: func(p *cluster.Policy) {
			p.SelectorOverrides = []cluster.SelectorOverride{override(has("disk"), "x"), override(has("storage"), "y")}
		}},
		`the selector "disk" gives the node the reboot mode powercycle, and "storage" gives it default`: {severity: cluster.Permanent, change: func(p *cluster.Policy) {
			p.SelectorOverrides = []cluster.SelectorOverride{
				{Selector: has("disk"), RebootMode: cluster.RebootPowercycle}, {Selector: has("storage"), RebootMode: cluster.RebootDefault},
			}
		}},
		`the node is to be left alone (selector_overrides "disk") and to move first (canary_selector "storage")`: {severity: cluster.Permanent, change: func(p *cluster.Policy) {
			p.CanarySelector, p.SelectorOverrides = has("storage"), []cluster.SelectorOverride{override(has("disk"), "")}
		}},
		`the node is to be left alone (selector_overrides "disk") and to move first (canary)`: {severity: cluster.Permanent, change: func(p *cluster.Policy) {
			p.Canary, p.SelectorOverrides = []string{"worker-0"}, []cluster.SelectorOverride{override(has("disk"), "")}
		}},
		`the node is to be left alone (node_overrides) and to move first (canary_selector "disk")`: {severity: cluster.Permanent, change: func(p *cluster.Policy) {
			p.CanarySelector, p.Hold = has("disk"), map[string]bool{"worker-0": true}
		}},
		`no worker of the cluster has labels that the selector "gpu" matches`: {severity: cluster.Advice, change: func(p *cluster.Policy) { p.CanarySelector = has("gpu") }},
		`no node of the cluster has labels that the selector "gpu" matches`: {severity: cluster.Advice, change: func(p *cluster.Policy) {
			p.SelectorOverrides = []cluster.SelectorOverride{override(has("gpu"), "")}
		}},
	} {
		policy := cluster.DefaultPolicy()
		given.change(&policy)

		_, findings := plan.Select(cluster.Observation{Nodes: []cluster.Node{named("worker-0", "disk", "storage"), named("worker-1")}}, policy)
		wording.NoteFindings(t, findings)

		if len(findings) != 1 || findings[0].Severity != given.severity || !strings.Contains(findings[0].Found, says) {
			t.Errorf("got %+v, want one that says %q", findings, says)
		}
	}

	// Two selectors may agree.
	policy := cluster.DefaultPolicy()
	policy.SelectorOverrides = []cluster.SelectorOverride{override(has("disk"), "x"), override(has("storage"), "x")}

	if _, findings := plan.Select(cluster.Observation{Nodes: []cluster.Node{named("worker-0", "disk", "storage")}}, policy); len(findings) > 0 {
		t.Errorf("two selectors that agree are refused: %+v", findings)
	}
}

// TestSelect_HeldCanaryIsInTheWay: a canary that is held by a label after the run began protects no other node.
func TestSelect_HeldCanaryIsInTheWay(t *testing.T) {
	t.Parallel()

	policy := cluster.DefaultPolicy()
	policy.CanarySelector = has("first")
	policy.SelectorOverrides = []cluster.SelectorOverride{override(has("held"), "")}
	policy, _ = plan.Select(cluster.Observation{Nodes: []cluster.Node{named("worker-0", "first")}}, policy)
	policy, _ = plan.Select(cluster.Observation{Nodes: []cluster.Node{named("worker-0", "first", "held")}}, policy)

	step := plan.Step{Node: "worker-1", Role: cluster.Worker, From: version.MustParse("1.13.2"), To: version.MustParse("1.13.4")}

	findings := plan.Faltering(policy, named("worker-0", "first", "held"), step)
	wording.NoteFindings(t, findings)

	if len(findings) != 1 || !strings.Contains(findings[0].Found, `this canary is to be left alone now (selector_overrides "held")`) {
		t.Errorf("got %+v", findings)
	}
}
