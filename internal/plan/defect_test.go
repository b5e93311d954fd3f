// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// uki makes nodes boot a UKI.
func (s *scene) uki(names ...string) *scene {
	for _, name := range names {
		s.node(name).Machine.BootedWithUKI = true
	}

	return s
}

// reboots sets how a node is rebooted.
func (s *scene) reboots(name string, mode cluster.RebootMode) *scene {
	s.policy.RebootModes = map[string]cluster.RebootMode{name: mode}

	return s
}

func TestDefect_VersionsOnTheWayAreHeldAgainstTheList(t *testing.T) {
	t.Parallel()

	type found struct {
		severity  cluster.Severity
		attribute string
		node      string
		says      []string
	}

	for behaviour, test := range map[string]struct {
		scene *scene
		want  []found
	}{
		"nothing is known": {scene: newScene(3, 2).uki("worker-1")},
		"a version that was withdrawn": {
			newScene(3, 2).runs("1.13.0").aims("1.13.1"),
			[]found{{cluster.Permanent, "talos_version", "", []string{"Talos 1.13.1 was broken", "siderolabs/talos#13312", "Choose 1.13.2 or newer", `skip = ["known-defects"]`}}},
		},
		"a version that was withdrawn, accepted": {
			newScene(3, 2).runs("1.13.0").aims("1.13.1").skips("known-defects"),
			[]found{{cluster.Advice, "talos_version", "", []string{"Talos 1.13.1 was broken"}}},
		},
		"a version that was withdrawn, and runs already": {scene: newScene(3, 2).runs("1.13.1").aims("1.13.1")},
		"a version that was withdrawn, to walk through": {
			newScene(3, 2).runs("1.12.6").aims("1.14.1").through("1.13.1"),
			[]found{{cluster.Permanent, "intermediate_versions", "", []string{"Talos 1.13.1 was broken"}}},
		},
		"versions that some nodes leave": {
			newScene(3, 2).runs("1.9.1", "worker-1", "worker-2").runs("1.10.9", "cp-1", "cp-2", "cp-3").aims("1.10.9").kubernetes("1.30.1"),
			[]found{{cluster.Advice, "talos_version", "", []string{"Talos 1.9.0 to 1.9.2 may have lost", "it concerns worker-1, worker-2", "talosctl upgrade --stage"}}},
		},
		"a version that does not boot by firmware, of nodes that boot GRUB": {scene: newScene(3, 2).aims("1.13.9")},
		"a version that does not boot by firmware": {
			newScene(3, 2).aims("1.13.9").uki("worker-1", "worker-2"),
			[]found{{cluster.Advice, "talos_version", "", []string{"Talos 1.13.9 was reported to hang", "it concerns worker-1, worker-2", "one machine"}}},
		},
		"a version that does not boot by firmware, through the firmware": {
			newScene(3, 2).aims("1.13.9").uki("worker-1", "worker-2").reboots("worker-2", cluster.RebootPowercycle),
			[]found{
				{cluster.Permanent, "talos_version", "worker-2", []string{"Talos 1.13.9 was reported to hang"}},
				{cluster.Advice, "talos_version", "worker-1", []string{"Talos 1.13.9 was reported to hang"}},
			},
		},
		"a version that does not boot by firmware, of a held node": {scene: newScene(3, 2).aims("1.13.9").uki("worker-1").holds("worker-1")},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			got := slices.DeleteFunc(test.scene.said(t).Findings, func(f cluster.Finding) bool { return f.Check != cluster.CheckDefects })
			if len(got) != len(test.want) {
				t.Fatalf("findings %v; want %d", got, len(test.want))
			}

			for index, want := range test.want {
				if f := got[index]; f.Severity != want.severity || f.Attribute != want.attribute || f.Node != want.node {
					t.Errorf("finding %+v; want severity %d at %s of node %q", f, want.severity, want.attribute, want.node)
				}

				for _, part := range want.says {
					if !strings.Contains(got[index].String(), part) {
						t.Errorf("the finding does not say %q: %s", part, got[index])
					}
				}
			}
		})
	}
}
