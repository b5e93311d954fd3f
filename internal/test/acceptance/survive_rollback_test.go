// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// rollingBack are the arguments of a resource that sends back what does not
// become healthy in time.
const rollingBack = "talos_version = \"1.13.4\"\non_failure = \"rollback\"\nnode_timeout = \"12m\"\n"

// sick is a node that does not become healthy with what it was upgraded to.
type sick struct {
	options sim.Options
	node    string
	script  string
	says    []string
	// first are the nodes that were upgraded before it.
	first []string
}

func sicknesses() map[string]sick {
	small := func(talos string) sim.Options {
		return sim.Options{ControlPlanes: 1, Workers: 2, Talos: talos, Pods: 2}
	}

	return map[string]sick{
		"worker never Ready": {
			small(talosModern), faulty, `faults: [{node: worker-1, step: boot, effect: not-ready}]`,
			[]string{"is not ready", "The last lines of the log of machined"},
			[]string{"worker-0"},
		},
		"worker never Ready, legacy": {
			small(talosLegacy), faulty, `faults: [{node: worker-1, step: boot, effect: not-ready}]`,
			[]string{"is not ready", "The last lines of the log of machined"},
			[]string{"worker-0"},
		},
		"control plane never Ready": {
			sim.Options{ControlPlanes: 3, Talos: talosModern},
			"cp-1", `faults: [{node: cp-1, step: boot, effect: not-ready}]`,
			[]string{"is not ready", "The last lines of the log of machined"},
			[]string{"cp-0"},
		},
	}
}

// TestAccRollback sends a node back to what it ran before, once: the run fails and
// says so, the next one does not try the same image again by itself, and one that
// was told to does.
func TestAccRollback(t *testing.T) {
	full(t)

	for title, test := range sicknesses() {
		t.Run(title, func(t *testing.T) {
			s := start(t, test.options)
			s.faults(test.script)

			w := newWorkspace(t)
			w.write(use(s), rollingBack)

			previous := test.options.Talos
			w.apply().mustFail(append(test.says, test.node, "rolled back to Talos "+previous, "in service", "retry_boot_id = ", "nothing is tainted")...)
			s.wantRunning(previous, test.node)
			s.wantRunning(talosTarget, test.first...)
			s.wantCordoned()
			s.times(map[string]int{test.node: 1})

			if phases := s.phases(test.node); phases[len(phases)-1] != "rolled-back" || !slices.Contains(phases, "rolling-back") {
				t.Errorf("the journal went through %v", phases)
			}

			if states := s.published("talos-status"); !slices.Equal(states, []string{"in-progress", "rolling-back", "failed"}) {
				t.Errorf("talos-status went through %v", states)
			}

			if failed := s.published("failed-nodes"); len(failed) == 0 || failed[len(failed)-1] != test.node {
				t.Errorf("failed-nodes went through %v", failed)
			}

			// The fault is gone, but nobody has said that the image is any better.
			s.faults("")
			w.plan().mustSucceed(2).mustWarn("node_overrides")

			refused := w.apply().mustFail(test.node, "rolled back", "node_overrides")

			s.times(map[string]int{test.node: 1})

			w.write(use(s), rollingBack+refused.told(t, test.node))
			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, nil)
			s.times(map[string]int{test.node: 2})
			s.nothingLeft()
			w.mustPlan()
		})
	}
}

// told is the argument that an error says to set for a node whose image may be
// tried again.
func (d diagnostic) told(t *testing.T, node string) string {
	t.Helper()

	match := regexp.MustCompile(`node_overrides = \{ "` + node + `" = \{ retry_boot_id = "[^"]+" \} \}`).FindString(d.Detail)
	if match == "" {
		t.Fatalf("no way to try again in %s", d)
	}

	return match
}

// wantRunning asserts which version nodes run.
func (s *simulated) wantRunning(version string, nodes ...string) {
	s.t.Helper()

	judged := s.verdict()
	for _, name := range nodes {
		if got := judged.Nodes[name].Talos; got != version {
			s.t.Errorf("%s runs Talos %s, want %s", name, got, version)
		}
	}
}

// TestAccNoRollbackUnlessAsked leaves the node as it is, cordoned. When the reason
// is gone the next apply puts it back into service, without touching it again.
func TestAccNoRollbackUnlessAsked(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: boot, effect: not-ready}]`)

	w := newWorkspace(t)
	w.write(use(s), strings.Replace(rollingBack, "rollback", "stop", 1))
	w.apply().mustFail(faulty, "is not ready", "not back in service yet")
	s.wantRunning(talosTarget, faulty)
	s.wantCordoned(faulty)

	if states := s.published("talos-status"); !slices.Equal(states, []string{"in-progress", "failed"}) {
		t.Errorf("talos-status went through %v", states)
	}

	s.faults("")
	s.settle()
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
	s.nothingLeft()
	w.mustPlan()
}

// TestAccNoRollbackWhereItIsNotSafe: nobody saw how the installer ended, so that
// nobody knows what the node would start. It is left as with stop, and that is
// said.
func TestAccNoRollbackWhereItIsNotSafe(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: install, effect: connection-lost-early}, {node: worker-1, step: boot, effect: not-ready}]`)

	w := newWorkspace(t)
	w.write(use(s), rollingBack)
	w.apply().mustFail(faulty, "is not ready", "not rolled back", "nobody saw the end of the installer")
	s.wantRunning(talosTarget, faulty)
	s.wantCordoned(faulty)

	s.faults("")
	s.settle()
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
	s.nothingLeft()
}
