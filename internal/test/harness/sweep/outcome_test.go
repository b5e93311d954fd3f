// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// sound fails the case when an invariant was broken.
func (l *life) sound() {
	for _, broken := range l.Judge.Verdict().Violations {
		l.T.Fatalf("violation: %+v\n%s", broken, l.Judge.Text())
	}
}

// told are the boots from which nodes that have returned to their old system may
// be tried again.
func (l *life) told() map[string]string {
	told := map[string]string{}

	for _, entry := range l.Journal().Entries {
		if entry.Returned() {
			told[entry.Node] = entry.BootID
		}
	}

	return told
}

// whole tells that every machine is in service.
func (l *life) whole() bool {
	for _, state := range l.World().Nodes() {
		if !state.Reachable || !state.Ready || !state.Kubelet.Ready || state.Stage != model.StageRunning {
			return false
		}

		if state.Role != model.ControlPlane {
			continue
		}

		if !state.APIServerUp || !state.EtcdHealthy || !state.EtcdServed {
			return false
		}
	}

	return true
}

// ended looks at how a run ended that was not killed: within its time, with the
// whole story where it failed, and with nothing left that keeps others out.
func (l *life) ended(name string, err error) {
	l.sound()

	if err == nil {
		return
	}

	var failed *engine.Failure

	switch {
	case l.World().Now() >= runMost || errors.Is(err, context.Canceled):
		l.T.Fatalf("L3: %s did not end by itself: %v\n%s", name, err, l.Judge.Text())
	case !errors.As(err, &failed):
		l.T.Errorf("L5: %s ended with %v, which is no failure that says what to do\n%s", name, err, l.Judge.Text())
	default:
		l.explained(name, failed)
	}

	// Without an API server nothing can be given back.
	if !l.World().Serving() {
		return
	}

	if holder := l.Lease().Holder; strings.HasPrefix(holder, name) {
		l.T.Errorf("L4: %s ended with %v and still holds the lease\n%s", name, err, l.Judge.Text())
	}
}

// explained wants what was seen, where that leaves the cluster, and a remedy.
func (l *life) explained(name string, failed *engine.Failure) {
	remedy := failed.Remedy
	for _, finding := range failed.Findings {
		if remedy == "" {
			remedy = finding.Remedy
		}
	}

	if failed.Summary == "" || failed.State == "" || remedy == "" || failed.Seen == "" && len(failed.Findings) == 0 {
		l.T.Errorf("L5: %s ended with a failure without summary, what was seen, state or remedy: %+v", name, failed)
	}
}

// arrived fails the case unless the target is reached, nothing was broken and
// nothing was left behind.
func (l *life) arrived() {
	l.sound()
	l.AllRun(l.unit.talos)
	l.Tidy()

	if l.Journal().Manifests != nil {
		l.T.Error("the journal still says that manifests are due")
	}

	want := map[string]string{"talos-status": "completed", "talos-current": l.unit.talos}

	if target := l.unit.kubernetes; target != "" {
		want["kubernetes-status"], want["kubernetes-current"] = "completed", target

		for _, node := range l.World().Nodes() {
			if runs := componentsOf(node); slices.ContainsFunc(runs, func(version string) bool { return version != target }) {
				l.T.Errorf("%s runs %+v, want Kubernetes %s", node.Name, node.Components, target)
			}
		}
	}

	notes := l.Annotations()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if notes[key] != want[key] {
			l.T.Errorf("annotation %s is %q, want %q", key, notes[key], want[key])
		}
	}

	if l.T.Failed() {
		l.T.Fatal(l.Judge.Text())
	}
}

func componentsOf(node model.NodeState) []string {
	runs := []string{node.Components.Proxy, node.Components.Kubelet}
	if node.Role == model.ControlPlane {
		runs = append(runs, node.Components.APIServer, node.Components.ControllerManager, node.Components.Scheduler)
	}

	return runs
}
