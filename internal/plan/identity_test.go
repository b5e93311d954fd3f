// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// machineID gives the node another machine ID.
func (s *scene) machineID(name, id string) *scene {
	if s.node(name).Machine != nil {
		s.node(name).Machine.MachineID = id
	}

	s.node(name).Kube.MachineID = id

	return s
}

func (s *scene) unidentified(name string) *scene { return s.machineID(name, "") }

// cloned gives the node the machine ID of another one.
func (s *scene) cloned(from, to string) *scene { return s.machineID(to, s.node(from).MachineID()) }

func (s *scene) running(name, talos string) *scene {
	s.node(name).Machine.Talos = version.MustParse(talos)

	return s
}

// TestHardwareMayShareAUUIDOrHaveNone: the journal does not go by it.
func TestHardwareMayShareAUUIDOrHaveNone(t *testing.T) {
	t.Parallel()

	want := len(newScene(3, 2).make().Steps)

	for _, uuid := range []string{"", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009"} {
		s := newScene(3, 2)

		for i := range s.snapshot.Nodes {
			s.snapshot.Nodes[i].Machine.UUID, s.snapshot.Nodes[i].Kube.SystemUUID = uuid, uuid
		}

		if made := s.said(t); len(cluster.Blocking(made.Findings)) > 0 || len(made.Steps) != want {
			t.Errorf("UUID %q: %d steps, findings %v", uuid, len(made.Steps), made.Findings)
		}
	}
}

// TestACloneIsSeenWhileItDoesNotAnswer: Kubernetes tells its machine ID too.
func TestACloneIsSeenWhileItDoesNotAnswer(t *testing.T) {
	t.Parallel()

	findings := newScene(3, 2).cloned("worker-1", "worker-2").silent("worker-1").make().Findings

	if !slices.ContainsFunc(findings, func(f cluster.Finding) bool {
		return f.Node == "worker-2" && f.Severity == cluster.Observed && strings.Contains(f.Found, "same machine ID as worker-1")
	}) {
		t.Errorf("findings: %v", findings)
	}
}

// TestKubernetesTellsTheMachineIDWhereTalosDoesNot: of a node that is down, or too
// old to tell.
func TestKubernetesTellsTheMachineIDWhereTalosDoesNot(t *testing.T) {
	t.Parallel()

	old := newScene(3, 2).entry("worker-1", cluster.PhaseRebooting, "boot-before")
	old.node("worker-1").Machine.MachineID = ""

	for title, s := range map[string]*scene{
		"down": newScene(3, 2).entry("worker-1", cluster.PhaseRebooting, "boot-before").silent("worker-1"),
		"old":  old,
	} {
		made := s.said(t)
		if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
			t.Errorf("%s: %v", title, blocking)
		}

		if first := made.Steps[0]; first.Node != "worker-1" || !first.Finish || first.Key != "id-worker-1" {
			t.Errorf("%s: the first step is %+v", title, first)
		}
	}
}

// TestASilentNodeIsInTheMiddleOfTheUpgradeThatHasItsName: what its kubelet has
// registered, if anything, may be of another installation.
func TestASilentNodeIsInTheMiddleOfTheUpgradeThatHasItsName(t *testing.T) {
	t.Parallel()

	for _, registered := range []string{"", "id-of-another-installation"} {
		s := newScene(3, 2).entry("worker-1", cluster.PhaseRebooting, "boot-before").silent("worker-1").machineID("worker-1", registered)

		made := s.said(t)
		if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
			t.Errorf("registered as %q: %v", registered, blocking)
		}

		if first := made.Steps[0]; first.Node != "worker-1" || !first.Finish || first.Key != "id-worker-1" {
			t.Errorf("registered as %q: the first step is %+v", registered, first)
		}
	}
}

// TestWhatLeftTheClusterIsNobodysUpgrade: neither a node that is there under
// another name, nor an upgrade that ended.
func TestWhatLeftTheClusterIsNobodysUpgrade(t *testing.T) {
	t.Parallel()

	renamed := newScene(3, 2).entry("worker-1", cluster.PhaseInstalled, "boot-worker-1")
	renamed.machineID("worker-2", "id-worker-1").machineID("worker-1", "id-new")

	for title, s := range map[string]*scene{
		"the machine is there under another name": renamed,
		"the machine fell back before it left":    newScene(3, 2).entry("worker-1", cluster.PhaseFallback, "boot-before").machineID("worker-1", "id-after"),
	} {
		if blocking := cluster.Blocking(s.said(t).Findings); len(blocking) > 0 {
			t.Errorf("%s: %v", title, blocking)
		}
	}
}
