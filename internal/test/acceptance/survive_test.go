// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// guarded makes Terraform refuse every plan that would destroy or replace the resource.
const guarded = "\nlifecycle {\n  prevent_destroy = true\n}"

// actions returns what a plan, or the plan of an apply, would do to resources.
func (r result) actions() []string {
	r.t.Helper()

	var actions []string

	for line := range strings.Lines(r.output) {
		var message struct {
			Type   string `json:"type"`
			Change struct {
				Action string `json:"action"`
			} `json:"change"`
		}

		if json.Unmarshal([]byte(line), &message) == nil && message.Type == "planned_change" {
			actions = append(actions, message.Change.Action)
		}
	}

	return actions
}

// mustPlan fails the test unless a plan would do exactly these actions.
func (w *workspace) mustPlan(actions ...string) result {
	w.t.Helper()

	exit := 0
	if len(actions) > 0 {
		exit = 2
	}

	planned := w.plan().mustSucceed(exit)
	if got := planned.actions(); !slices.Equal(got, actions) {
		w.t.Errorf("a plan would %v, want %v", got, actions)
	}

	return planned
}

// addresses returns the addresses of the resources in the state.
func (w *workspace) addresses() []string {
	w.t.Helper()

	listed := w.run("state", "list")
	if listed.exit != 0 && !strings.Contains(listed.output, "No state file was found") {
		w.t.Fatalf("state list: %s", listed.output)
	}

	var addresses []string

	for line := range strings.Lines(listed.output) {
		if address := strings.TrimSpace(line); strings.HasPrefix(address, "talosupgrade_") {
			addresses = append(addresses, address)
		}
	}

	return addresses
}

// published returns the values that an annotation went through.
func (s *simulated) published(key string) []string {
	s.t.Helper()

	var values []string

	for _, event := range s.history() {
		if event.Kind == history.KindAnnotation && event.Detail["key"] == key {
			values = append(values, event.Detail["value"])
		}
	}

	return slices.Compact(values)
}

// phases returns the phases that the journal's entry of a node went through; the last one is empty if the entry is
// gone.
func (s *simulated) phases(node string) []string {
	s.t.Helper()

	var phases []string

	for _, event := range s.history() {
		if event.Kind == history.KindJournal && event.Node == node {
			phases = append(phases, event.Detail["phase"])
		}
	}

	return phases
}

// nothingLeft fails the test if a run has left anything behind: a lock, a record, or a cordon of ours.
func (s *simulated) nothingLeft() {
	s.t.Helper()

	cluster := s.someone()

	journal, err := cluster.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(s.t.Context(), "talosupgrade-journal", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}

	// The format of the journal and its last holder stay.
	delete(journal.Data, "format")
	delete(journal.Data, "holder")

	if len(journal.Data) > 0 {
		s.t.Errorf("the journal holds %v", journal.Data)
	}

	lease, err := cluster.CoordinationV1().Leases(metav1.NamespaceSystem).Get(s.t.Context(), "talosupgrade", metav1.GetOptions{})
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		s.t.Errorf("the lease is held by %s", *lease.Spec.HolderIdentity)
	}

	nodes, err := cluster.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}

	for _, node := range nodes.Items {
		if by, ours := node.Annotations["talosupgrade.vitistack.io/cordoned-by"]; ours || node.Spec.Unschedulable {
			s.t.Errorf("%s is cordoned (%t) by %q", node.Name, node.Spec.Unschedulable, by)
		}
	}
}

// released reports whether the last event of the lease is its release.
func (s *simulated) released() bool {
	s.t.Helper()

	last := ""

	for _, event := range s.history() {
		if event.Kind == history.KindLease {
			last = event.Detail["action"]
		}
	}

	return last == "release"
}

// wantCordoned fails the test unless exactly these nodes are cordoned.
func (s *simulated) wantCordoned(want ...string) {
	s.t.Helper()

	var cordoned []string

	for name, node := range s.verdict().Nodes {
		if node.Cordoned {
			cordoned = append(cordoned, name)
		}
	}

	slices.Sort(cordoned)

	if !slices.Equal(cordoned, want) {
		s.t.Errorf("%v are cordoned, want %v", cordoned, want)
	}
}

// TestAccWhatHappensOnFailureIsNoRoll wants a change of on_failure and retry to change the state, and nothing in the
// cluster.
func TestAccWhatHappensOnFailureIsNoRoll(t *testing.T) {
	full(t)

	s := startSmall(t, talosTarget)
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)

	w.write(use(s), "talos_version = \"1.13.4\"\non_failure = \"rollback\"\nretry = { attempts = 3 }")
	w.mustPlan("update").mustNotWarn("Rolling upgrade")
	w.apply().mustSucceed(0)
	s.unchanged()

	state := w.attributes()
	if state["on_failure"] != "rollback" || at(state, "retry", "attempts") != 3.0 || at(state, "retry", "backoff") != "30s" {
		t.Errorf("in state are on_failure %v and retry %v", state["on_failure"], state["retry"])
	}

	w.write(use(s), "talos_version = \"1.13.4\"\non_failure = \"rollback\"\nretry = {\n attempts = 3\n backoff = \"0.5m\"\n}")
	w.mustPlan()

	w.write(use(s), "talos_version = \"1.13.4\"\non_failure = \"roll-back\"")
	w.plan().mustFail(`Did you mean "rollback"?`, "on_failure")

	w.write(use(s), "talos_version = \"1.13.4\"\nretry = { attempts = 0.5 }")
	w.plan().mustFail("retry.attempts is 0.5", "from 1 to 10")
}
