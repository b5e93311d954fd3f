// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
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

// releases returns a table that does not grow with the built-in one.
func releases() *compat.Table {
	table, err := compat.Read("", "as-of 2026-10-21\ntalos 1.13.0 1.13.12\ntalos 1.14.0 1.14.6\nkubernetes 1.34.2\n")
	if err != nil {
		panic(err)
	}

	return table
}

// knows gives the scene a table that adds the text, as of the day, and sets the day of the observation.
func (s *scene) knows(asOf, text, seen string) *scene {
	table, err := releases().With("releases.txt", "as-of "+asOf+"\n"+text)
	if err != nil {
		panic(err)
	}

	day, err := time.Parse(time.DateOnly, seen)
	if err != nil {
		panic(err)
	}

	s.policy.Releases, s.snapshot.Taken = table, day

	return s
}

// unread gives the scene the built-in table, because no other one could be read.
func (s *scene) unread() *scene {
	s.policy.Releases = releases().Without("releases.txt: not found")

	return s
}

// later returns the day that many days later.
func later(t *testing.T, day string, days int) string {
	t.Helper()

	parsed, err := time.Parse(time.DateOnly, day)
	if err != nil {
		t.Fatal(err)
	}

	return parsed.AddDate(0, 0, days).Format(time.DateOnly)
}

const badHop = "stop 1.13.99 | withdrawn | was broken | Choose another. | x#1\n"

func TestReleases_PlansGoByTheTableThatIsNamed(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene *scene
		want  string
	}{
		"what is built in":             {newScene(3, 2).runs("1.12.6").aims("1.14.1").through(), newest(t, "1.13.x").Talos.String()},
		"a newer patch":                {newScene(3, 2).runs("1.12.6").aims("1.14.1").through().knows("2026-12-01", "talos 1.13.98\n", "2026-12-01"), "1.13.98"},
		"one that was withdrawn":       {newScene(3, 2).runs("1.12.6").aims("1.14.1").through().knows("2026-12-01", "talos 1.13.98 1.13.99\n"+badHop, "2026-12-01"), "1.13.98"},
		"one that somebody named":      {newScene(3, 2).runs("1.12.6").aims("1.14.1").through("1.13.4").knows("2026-12-01", "talos 1.13.98\n", "2026-12-01"), "1.13.4"},
		"one named, which is unlisted": {newScene(3, 2).runs("1.12.6").aims("1.14.1").through("1.13.4").unread(), "1.13.4"},
	} {
		made := test.scene.make()
		if len(made.Hops) != 2 || made.Hops[0].To.Talos.String() != test.want {
			t.Errorf("%s: hops %v, want one to %s first", behaviour, made.Hops, test.want)
		}
	}

	withdrawn := newScene(3, 2).runs("1.13.0").aims("1.13.99").knows("2026-12-01", badHop, "2026-12-01").all(cluster.CheckDefects)
	if len(withdrawn) != 1 || withdrawn[0].Severity != cluster.Permanent {
		t.Errorf("got %v, want a refusal", withdrawn)
	}
}

func TestReleases_AgeIsToldWhereThePlanDependsOnIt(t *testing.T) {
	t.Parallel()

	const unheard = "Talos 1.14.99 is newer: whether a defect is known is not checked"

	const (
		asOf   = "2026-10-21"
		chosen = "the plan walks through the newest of them: Talos 1.13.12"
	)

	for behaviour, test := range map[string]struct {
		scene    *scene
		says     string
		severity cluster.Severity
	}{
		"nothing depends on it":              {scene: newScene(3, 2).runs("1.13.0").aims("1.13.4").knows(asOf, "", later(t, asOf, 800))},
		"a patch is chosen, and it is new":   {scene: newScene(3, 2).runs("1.12.6").aims("1.14.1").through().knows(asOf, "", later(t, asOf, 90))},
		"a patch is chosen, and it is old":   {scene: newScene(3, 2).runs("1.12.6").aims("1.14.1").through().knows(asOf, "", later(t, asOf, 91)), says: "91 days ago, and " + chosen},
		"a patch is named":                   {scene: newScene(3, 2).runs("1.12.6").aims("1.14.1").through("1.13.4").knows(asOf, "", later(t, asOf, 800))},
		"a patch is named that is newer":     {scene: newScene(3, 2).runs("1.12.6").aims("1.14.1").through("1.13.77").knows(asOf, "", later(t, asOf, 800)), says: "Talos 1.13.77 is newer"},
		"the target is newer, and it is new": {scene: newScene(3, 2).runs("1.14.0").aims("1.14.99").kubernetes("1.34.2").knows(asOf, "", later(t, asOf, 40))},
		"the target is newer, and it is old": {scene: newScene(3, 2).runs("1.14.0").aims("1.14.99").kubernetes("1.34.2").knows(asOf, "", later(t, asOf, 100)), says: unheard},
		"the target is newer than a later table": {
			scene: newScene(3, 2).runs("1.14.0").aims("1.14.99").kubernetes("1.34.2").knows(later(t, asOf, 90), "talos 1.14.100\n", later(t, asOf, 100)),
		},
		"the target is known and was withdrawn": {
			scene: newScene(3, 2).runs("1.14.0").aims("1.14.99").kubernetes("1.34.2").skips("known-defects").
				knows(asOf, "talos 1.14.99\nstop 1.14.99 | withdrawn | was broken | Choose another. | x#1\n", later(t, asOf, 800)),
		},
		"Kubernetes is newer": {scene: newScene(3, 2).asserts("1.34.99").knows(asOf, "", later(t, asOf, 800))},
		"a patch is chosen from what could not be read": {
			scene: newScene(3, 2).runs("1.12.6").aims("1.14.1").through().unread(), severity: cluster.Permanent,
			says: "release_source.table of the provider block could not be read (releases.txt: not found), and the patches to walk through are chosen with it; the built-in table would give Talos 1.13.12",
		},
		"nothing is chosen from what could not be read": {scene: newScene(3, 2).runs("1.13.0").aims("1.13.4").unread()},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			got := slices.DeleteFunc(test.scene.said(t).Findings, func(f cluster.Finding) bool { return !strings.Contains(f.String(), "release_source") })

			switch {
			case test.says == "" && len(got) > 0:
				t.Errorf("got %v, want nothing", got)
			case test.says == "":
			case len(got) != 1 || got[0].Severity != test.severity || !strings.Contains(got[0].String(), test.says):
				t.Errorf("got %v, want one of severity %d that says %q", got, test.severity, test.says)
			}
		})
	}
}

// TestReleases_SyncOfManifestsIsNoWay: a hop that only syncs manifests depends on no table.
func TestReleases_SyncOfManifestsIsNoWay(t *testing.T) {
	t.Parallel()

	made := newScene(3, 2).runs("1.13.4").due().unread().make()
	if len(made.Hops) != 1 || len(made.Steps) != 1 || made.Steps[0].Component != cluster.Manifests {
		t.Fatalf("hops %v, steps %v, want a sync alone", made.Hops, made.Steps)
	}

	if findings := made.Findings; slices.ContainsFunc(findings, func(f cluster.Finding) bool { return strings.Contains(f.String(), "release_source") }) {
		t.Errorf("findings %v", findings)
	}
}
