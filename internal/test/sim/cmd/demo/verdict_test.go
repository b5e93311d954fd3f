// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func goodVerdict() verdict {
	return verdict{Nodes: map[string]fate{
		"cp-0":     {Talos: "1.13.4", Installs: 1, Reboots: 1},
		"worker-0": {Talos: "1.13.4", Installs: 1, Reboots: 1},
	}}
}

func small(story string) scenario {
	return scenario{story: story, controlPlanes: 1, workers: 2, from: "1.12.6", to: "1.13.4"}
}

// TestVerdictOfEachStoryHasNoComplaint, but it has complaints as the verdict of another story.
func TestVerdictOfEachStoryHasNoComplaint(t *testing.T) {
	verdicts := map[string]map[string]fate{
		"a roll": {
			"cp-0":     {Talos: "1.13.4", Installs: 1, Reboots: 1},
			"worker-0": {Talos: "1.13.4", Installs: 1, Reboots: 1},
			"worker-1": {Talos: "1.13.4", Installs: 1, Reboots: 1},
		},
		"the first apply of a fallback": {
			"cp-0":     {Talos: "1.12.6"},
			"worker-0": {Talos: "1.13.4", Installs: 1, Reboots: 1},
			"worker-1": {Talos: "1.12.6", Installs: 1, Reboots: 2},
		},
		"a fallback": {
			"cp-0":     {Talos: "1.13.4", Installs: 1, Reboots: 1},
			"worker-0": {Talos: "1.13.4", Installs: 1, Reboots: 1},
			"worker-1": {Talos: "1.13.4", Installs: 2, Reboots: 3},
		},
	}
	wanted := map[string]map[string]fate{
		"a roll":                        small(storyRoll).end(),
		"the first apply of a fallback": small(storyFallback).fallenBack(),
		"a fallback":                    small(storyFallback).end(),
	}

	for name, nodes := range verdicts {
		for story, want := range wanted {
			if complaints := (verdict{Nodes: nodes}).complaints(want); (len(complaints) == 0) != (name == story) {
				t.Errorf("the verdict of %s as that of %s: got %q", name, story, complaints)
			}
		}
	}
}

func TestStandingTellsTouchedNodesFromOthers(t *testing.T) {
	judged := verdict{Nodes: map[string]fate{
		"cp-0":     {Talos: "1.12.6"},
		"cp-1":     {Talos: "1.12.6"},
		"worker-0": {Talos: "1.13.4", Installs: 1, Reboots: 1},
		"worker-1": {Talos: "1.12.6", Installs: 1, Reboots: 2, Cordoned: true},
	}}

	want := "Talos 1.13.4 on worker-0; Talos 1.12.6 on worker-1; cp-0, cp-1 not begun; worker-1 cordoned"
	if got := judged.standing(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestVerdictComplains(t *testing.T) {
	node := func(change func(*fate)) func(*verdict) {
		return func(v *verdict) {
			changed := v.Nodes["worker-0"]
			change(&changed)
			v.Nodes["worker-0"] = changed
		}
	}

	for name, test := range map[string]struct {
		spoil func(*verdict)
		want  []string
	}{
		"of a violated invariant": {
			func(v *verdict) {
				v.Violations = []violation{{Invariant: "S4", Node: "cp-0", Time: "03:12", What: "installed twice"}}
			},
			[]string{"invariant S4 was violated on cp-0 at 03:12: installed twice"},
		},
		"of a violation that no node is to blame for": {
			func(v *verdict) { v.Violations = []violation{{Invariant: "S7", Time: 9.5, What: "two holders"}} },
			[]string{"invariant S7 was violated on the cluster at 9.5: two holders"},
		},
		"of a node on another version": {
			node(func(f *fate) { f.Talos = "1.12.6" }),
			[]string{"worker-0 runs Talos 1.12.6 instead of 1.13.4"},
		},
		"of a node that was left cordoned": {
			node(func(f *fate) { f.Cordoned = true }),
			[]string{"worker-0 was left cordoned"},
		},
		"of a node that was installed twice": {
			node(func(f *fate) { f.Installs = 2 }),
			[]string{"worker-0 was installed 2 times and rebooted 1 times instead of 1 and 1"},
		},
		"of a node that rebooted without need": {
			node(func(f *fate) { f.Reboots = 2 }),
			[]string{"worker-0 was installed 1 times and rebooted 2 times instead of 1 and 1"},
		},
		"of a node that is missing": {
			func(v *verdict) { delete(v.Nodes, "worker-0") },
			[]string{"the simulator knows 1 nodes instead of 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			once := fate{Talos: "1.13.4", Installs: 1, Reboots: 1}
			judged := goodVerdict()
			test.spoil(&judged)

			if diff := cmp.Diff(test.want, judged.complaints(map[string]fate{"cp-0": once, "worker-0": once})); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnnotationsMustSayThatAllNodesAreDone(t *testing.T) {
	published := map[string]string{
		annotationPrefix + "talos-status": "completed", annotationPrefix + "talos-current": "1.13.4", annotationPrefix + "talos-progress": "4/5",
	}

	got := announced(published, "1.13.4", 5)
	want := []string{`annotation upgrade.vitistack.io/talos-progress is "4/5" instead of "5/5"`}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("complaints (-want +got):\n%s", diff)
	}

	published[annotationPrefix+"talos-progress"] = "5/5"

	if got := announced(published, "1.13.4", 5); len(got) != 0 {
		t.Errorf("got %q for what should be published", got)
	}
}

func TestComplaintsBecomeOneError(t *testing.T) {
	if err := complain(nil, []string{}); err != nil {
		t.Errorf("got %v without a complaint", err)
	}

	err := complain([]string{"first"}, []string{"second"})
	if err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "second") {
		t.Errorf("got %v", err)
	}
}
