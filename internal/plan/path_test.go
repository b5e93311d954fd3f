// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// state parses "1.12.6 1.34.2", or "1.12.6" if Kubernetes is not known.
func state(text string) plan.State {
	talos, kubernetes, both := strings.Cut(text, " ")

	read := plan.State{}
	if talos != "-" {
		read.Talos = version.MustParse(talos)
	}

	if both {
		read.Kubernetes = version.MustParse(kubernetes)
	}

	return read
}

// newest puts the newest known patches into a text such as "1.12.x 1.34.x".
func newest(t *testing.T, text string) plan.State {
	t.Helper()

	release := func(text string, product version.Product) string {
		line, wild := strings.CutSuffix(text, ".x")
		if !wild {
			return text
		}

		found, ok := compat.BuiltIn().Newest(product, version.MustParse(line+".0").Minor())
		if !ok {
			t.Fatalf("no release of %s is known", line)
		}

		return found.String()
	}

	talos, kubernetes, both := strings.Cut(text, " ")
	if !both {
		return state(release(talos, version.Talos))
	}

	return state(release(talos, version.Talos) + " " + release(kubernetes, version.Kubernetes))
}

func printed(states []plan.State) string {
	texts := make([]string, 0, len(states))
	for _, state := range states {
		texts = append(texts, state.String())
	}

	return strings.Join(texts, " -> ")
}

func TestPath_MovesTalosFirstUnlessTheMatrixDemandsTheOpposite(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		from, to string
		walk     plan.Walk
		between  []string
	}{
		"nothing to do":                 {from: "1.12.6 1.34.2", to: "1.12.6 1.34.2"},
		"a patch":                       {from: "1.12.6 1.34.2", to: "1.12.7"},
		"a release after its candidate": {from: "1.13.0-rc.1", to: "1.13.0"},
		"the next minor, without a patch before it": {from: "1.12.0 1.34.2", to: "1.13.4"},
		"three minors": {from: "1.11.2 1.33.0", to: "1.14.0", between: []string{"1.12.x 1.33.0", "1.13.x 1.33.0"}},
		"named patches instead of the newest": {
			from: "1.11.2 1.33.0", to: "1.14.0 1.35.1", between: []string{"1.12.1 1.33.0", "1.13.0 1.33.0", "1.14.0 1.33.0", "1.14.0 1.34.1"},
			walk: plan.Walk{Intermediate: []version.Version{version.MustParse("1.34.1"), version.MustParse("1.13.0"), version.MustParse("1.12.1")}},
		},
		"Kubernetes alone":                      {from: "1.13.4 1.33.2", to: "1.13.4 1.35.0", between: []string{"1.13.4 1.34.x"}},
		"Kubernetes while Talos is not managed": {from: "1.13.4 1.33.2", to: "- 1.34.0"},
		"both, Talos first":                     {from: "1.12.6 1.34.2", to: "1.13.4 1.35.0", between: []string{"1.13.4 1.34.2"}},
		"Kubernetes too old for the target": {
			from: "1.12.6 1.31.2", to: "1.14.0 1.33.0", between: []string{"1.13.x 1.31.2", "1.13.x 1.32.x", "1.14.0 1.32.x"},
		},
		"Kubernetes beyond every Talos but the last": {
			from: "1.12.6 1.35.2", to: "1.14.0 1.37.0", between: []string{"1.13.x 1.35.2", "1.14.0 1.35.2", "1.14.0 1.36.x"},
		},
		"out of an unsupported start by Talos":      {from: "1.12.6 1.36.0", to: "1.13.4"},
		"out of an unsupported start by Kubernetes": {from: "1.13.4 1.30.0", to: "1.13.4 1.31.0"},
		"a Talos beyond the matrix, if allowed":     {from: "1.15.0 1.36.0", to: "1.16.0 1.37.0", between: []string{"1.16.0 1.36.0"}, walk: plan.Walk{AllowUnknown: true}},
		"beyond the matrix minor by minor": {
			from: "1.14.0 1.36.0", to: "1.17.0", between: []string{"1.15.2 1.36.0", "1.16.1 1.36.0"},
			walk: plan.Walk{AllowUnknown: true, Intermediate: []version.Version{version.MustParse("1.15.2"), version.MustParse("1.16.1")}},
		},
		"the version that runs is beyond the matrix": {from: "1.99.0 1.60.0", to: "1.99.0 1.60.0"},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			from, to := state(test.from), state(test.to)
			if to.Kubernetes.IsZero() {
				to.Kubernetes = from.Kubernetes
			}

			want := []plan.State{from}
			for _, text := range test.between {
				want = append(want, newest(t, text))
			}

			end := to
			if end.Talos.IsZero() {
				end.Talos = from.Talos
			}

			if end != from {
				want = append(want, end)
			}

			// A half that is not managed is left out, or is to stay.
			for _, asked := range []plan.State{to, state(test.to)} {
				got, err := plan.Path(from, asked, test.walk)
				if err != nil {
					t.Fatal(err)
				}

				if !slices.Equal(got, want) {
					t.Errorf("path:\n%s\nwant:\n%s", printed(got), printed(want))
				}
			}
		})
	}
}

func TestPath_ImpossibleSaysWhatBlocks(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		from, to string
		walk     plan.Walk
		axis     version.Product
		reason   error
		says     []string
	}{
		"Talos goes down": {
			from: "1.13.4 1.34.2", to: "1.13.3 1.34.2", axis: version.Talos, reason: plan.ErrDowngrade, says: []string{"1.13.3 is older than 1.13.4"},
		},
		"Kubernetes goes down": {
			from: "1.13.4 1.34.2", to: "1.13.4 1.34.1", axis: version.Kubernetes, reason: plan.ErrDowngrade, says: []string{"Kubernetes 1.34.1"},
		},
		"nobody knows what runs": {
			from: "1.13.4", to: "1.13.4 1.34.1", axis: version.Kubernetes, reason: plan.ErrNoStart, says: []string{"which Kubernetes runs now is not known"},
		},
		"Talos is newer than the matrix": {
			from: "1.13.4 1.34.2", to: "1.99.0", axis: version.Talos, reason: compat.ErrNewer, says: []string{"talos 1.99", "not in the support matrix"},
		},
		"Kubernetes is newer than the matrix": {
			from: "1.15.0 1.38.0", to: "1.15.0 1.39.0", axis: version.Kubernetes, reason: compat.ErrNewer, says: []string{"kubernetes 1.39", "not in the support matrix"},
		},
		"Talos is older than the matrix": {
			from: "1.0.1", to: "1.1.0", axis: version.Talos, reason: compat.ErrUnknownMinor, says: []string{"talos 1.1"},
		},
		"a minor on the way has no release": {
			from: "1.14.0 1.34.2", to: "1.18446744073709551615.0", walk: walkThrough(), axis: version.Talos, reason: plan.ErrNoRelease,
			says: []string{"the minor versions 1.15, 1.16, 1.17, 1.18, 1.19, 1.20, 1.21, 1.22, 1.23, 1.24 and more, of which no release is known", "choose a version nearer"},
		},
		"one line on the way has no release": {
			from: "1.14.0 1.37.2", to: "1.16.0", walk: walkThrough(), axis: version.Talos, reason: plan.ErrNoRelease,
			says: []string{"the minor version 1.15, of which no release is known", "Name the release of Talos 1.15"},
		},
		"two minors on the way have no release": {
			from: "1.14.0 1.37.2", to: "1.18.0", walk: walkThrough("1.16.0"), axis: version.Talos, reason: plan.ErrNoRelease,
			says: []string{"the minor versions 1.15, 1.17, of which no release is known", "Name a release of each of them (of Talos)"},
		},
		"another major has no way at all": {
			from: "1.14.0 1.34.2", to: "2.0.0", walk: walkThrough("1.15.0", "1.16.0"), axis: version.Talos, reason: plan.ErrNoWay,
			says: []string{"Talos 2.0.0 is of another major version than 1.14.0, which runs, and no supported way leads there", "Choose a version of Talos 1"},
		},
		"another major is not a question of what is known": {
			from: "1.14.0 1.34.2", to: "2.4000000000.0", axis: version.Talos, reason: plan.ErrNoWay, says: []string{"another major version"},
		},
		"another major of Kubernetes": {
			from: "1.14.0 1.34.2", to: "1.14.0 2.0.0", axis: version.Kubernetes, reason: plan.ErrNoWay, says: []string{"Kubernetes 2.0.0 is of another major version", "Choose a version of Kubernetes 1"},
		},
		"a suffix makes it a pre-release": {
			from: "1.13.4 1.34.2", to: "1.13.4-slim 1.34.2", axis: version.Talos, reason: plan.ErrDowngrade,
			says: []string{"Talos 1.13.4-slim is a pre-release that comes before 1.13.4, which runs", "Ask for Talos 1.13.4 or newer"},
		},
		"Kubernetes stays and is too old": {
			from: "1.13.4 1.31.4", to: "1.14.0", axis: version.Talos, reason: compat.ErrUnsupported,
			says: []string{"Talos 1.14.0 needs Kubernetes 1.32 or newer, the cluster runs 1.31.4, and kubernetes_version is not set"},
		},
		"Kubernetes is asked to stay and is too new": {
			from: "1.12.4 1.37.0", to: "1.13.0 1.37.0", axis: version.Talos, reason: compat.ErrUnsupported,
			says: []string{"Talos 1.13.0 needs Kubernetes 1.36 or older, the cluster runs 1.37.0, and kubernetes_version asks for no other"},
		},
		"Kubernetes is too new for the Talos that stays": {
			from: "1.13.4 1.36.0", to: "1.13.4 1.37.0", axis: version.Kubernetes, reason: compat.ErrUnsupported,
			says: []string{"Talos 1.13.4 needs Kubernetes 1.36 or older, and 1.37.0 is asked for"},
		},
		"the two targets do not go together": {
			from: "1.12.4 1.35.0", to: "1.13.0 1.37.0", axis: version.Kubernetes, reason: compat.ErrUnsupported,
			says: []string{"Talos 1.13.0 needs Kubernetes 1.36 or older", "1.37.0 is asked for beside it"},
		},
		"a minor on the way does not run the Kubernetes that stays": {
			from: "1.11.0 1.36.0", to: "1.13.0", axis: version.Talos, reason: plan.ErrNoWay,
			says: []string{"needs Kubernetes 1.35 or older on the way", "the cluster runs 1.36.0"},
		},
		"an unsupported start leads nowhere": {
			from: "1.13.4 1.29.0", to: "1.14.0 1.33.0", axis: version.Talos, reason: plan.ErrNoWay,
			says: []string{"no supported way leads on from Talos 1.13.4, Kubernetes 1.29.0", "Talos 1.14.0 needs Kubernetes 1.32 or newer", "Talos 1.13.4 needs Kubernetes 1.31 or newer"},
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			got, err := plan.Path(state(test.from), state(test.to), test.walk)

			var refused *plan.PathError
			if !errors.As(err, &refused) || !errors.Is(err, test.reason) {
				t.Fatalf("path %s, error %v; want %v", printed(got), err, test.reason)
			}

			wording.NoteFindings(t, []cluster.Finding{{Check: cluster.CheckVersions, Found: err.Error(), Remedy: refused.Remedy}})

			if refused.Product != test.axis || refused.Remedy == "" {
				t.Errorf("axis %q, remedy %q; want %q and a remedy", refused.Product, refused.Remedy, test.axis)
			}

			for _, part := range test.says {
				if !strings.Contains(err.Error()+"; "+refused.Remedy, part) {
					t.Errorf("the error does not say %q: %v; %s", part, err, refused.Remedy)
				}
			}
		})
	}
}

// walkThrough returns a walk with the versions that accepts unknown ones. Its table ends with 1.14.
func walkThrough(texts ...string) plan.Walk {
	walk := plan.Walk{AllowUnknown: true, Releases: releases()}
	for _, text := range texts {
		walk.Intermediate = append(walk.Intermediate, version.MustParse(text))
	}

	return walk
}

// TestPath_PairThatTheMatrixDoesNotKnowIsRefused, unless unknown versions are allowed.
func TestPath_PairThatTheMatrixDoesNotKnowIsRefused(t *testing.T) {
	t.Parallel()

	talos, kubernetes := version.MustParse("1.99.0"), version.MustParse("1.34.2")

	refused := plan.Walk{}.CheckPair(talos, kubernetes)
	if refused == nil || !errors.Is(refused, compat.ErrNewer) {
		t.Fatalf("got %v, want Talos to be newer than the matrix", refused)
	}

	wording.NoteFindings(t, []cluster.Finding{{Check: cluster.CheckCompatibility, Found: refused.Reason, Remedy: refused.Remedy}})

	if allowed := (plan.Walk{AllowUnknown: true}).CheckPair(talos, kubernetes); allowed != nil {
		t.Errorf("got %v although unknown versions are allowed", allowed)
	}
}

// axisVersions returns an early version of every minor version, with which paths begin and end, and the newest known
// one, through which they lead.
func axisVersions(oldest, last version.Minor, product version.Product) (ends, all []version.Version) {
	for minor := oldest; minor.Compare(last) <= 0; minor = minor.Next() {
		end := version.MustParse(fmt.Sprintf("%s.1", minor))
		ends, all = append(ends, end), append(all, end)

		if through, found := compat.BuiltIn().Newest(product, minor); found && !through.Equal(end) {
			all = append(all, through)
		}
	}

	return ends, all
}

// moves returns the versions that one hop can reach: any newer one of the same minor version or the next.
func moves(from version.Version, all []version.Version) []version.Version {
	var reached []version.Version

	for _, to := range all {
		if from.Less(to) && (to.Minor() == from.Minor() || to.Minor() == from.Minor().Next()) {
			reached = append(reached, to)
		}
	}

	return reached
}

// fewest searches all paths from one state, breadth first and in no particular order, and counts the hops to every
// state that can be reached.
func fewest(from plan.State, allTalos, allKubernetes []version.Version) map[plan.State]int {
	hops := map[plan.State]int{from: 0}

	for queue := []plan.State{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]

		var next []plan.State

		for _, talos := range moves(at.Talos, allTalos) {
			if compat.Upgradeable(at.Talos, talos) == nil {
				next = append(next, plan.State{Talos: talos, Kubernetes: at.Kubernetes})
			}
		}

		for _, kubernetes := range moves(at.Kubernetes, allKubernetes) {
			next = append(next, plan.State{Talos: at.Talos, Kubernetes: kubernetes})
		}

		for _, to := range next {
			if _, seen := hops[to]; !seen && compat.Supports(to.Talos, to.Kubernetes) == nil {
				hops[to] = hops[at] + 1
				queue = append(queue, to)
			}
		}
	}

	return hops
}

// TestPath_NoneIsShorterOverAllPairsOfTheMatrix compares every path, from every pair of minor versions to every
// other, with an exhaustive search: a path is found if and only if one exists, none is shorter, each state is one
// hop from the previous one, and from every state the path is the rest.
func TestPath_NoneIsShorterOverAllPairsOfTheMatrix(t *testing.T) {
	t.Parallel()

	oldestTalos, newestTalos := compat.TalosMinors()
	oldestKubernetes, newestKubernetes := compat.KubernetesRange()
	talosEnds, allTalos := axisVersions(oldestTalos, newestTalos, version.Talos)
	kubernetesEnds, allKubernetes := axisVersions(oldestKubernetes, newestKubernetes, version.Kubernetes)

	checked := 0

	for _, fromTalos := range talosEnds {
		for _, fromKubernetes := range kubernetesEnds {
			from := plan.State{Talos: fromTalos, Kubernetes: fromKubernetes}
			hops := fewest(from, allTalos, allKubernetes)

			for _, toTalos := range talosEnds {
				for _, toKubernetes := range kubernetesEnds {
					to := plan.State{Talos: toTalos, Kubernetes: toKubernetes}
					checkPath(t, from, to, hops)

					checked++
				}
			}
		}
	}

	if checked < 10_000 {
		t.Errorf("only %d pairs were checked", checked)
	}
}

func checkPath(t *testing.T, from, to plan.State, hops map[plan.State]int) {
	t.Helper()

	want, reachable := hops[to]

	path, err := plan.Path(from, to, plan.Walk{})
	if (err == nil) != reachable {
		t.Fatalf("%s to %s: error %v, and there is a way: %t", from, to, err, reachable)
	}

	if err != nil {
		return
	}

	if len(path)-1 != want || path[0] != from || path[len(path)-1] != to {
		t.Fatalf("%s to %s: %s, and %d hops are enough", from, to, printed(path), want)
	}

	for index := 1; index < len(path); index++ {
		before, after := path[index-1], path[index]

		if err := compat.Supports(after.Talos, after.Kubernetes); err != nil {
			t.Fatalf("%s to %s: %v", from, to, err)
		}

		talosMoves, kubernetesMoves := before.Talos.Less(after.Talos), before.Kubernetes.Less(after.Kubernetes)
		if talosMoves == kubernetesMoves || after.Talos.Less(before.Talos) || after.Kubernetes.Less(before.Kubernetes) {
			t.Fatalf("%s to %s: no hop from %s to %s", from, to, before, after)
		}

		if beyond(before.Talos, after.Talos) || beyond(before.Kubernetes, after.Kubernetes) {
			t.Fatalf("%s to %s: a minor version is skipped between %s and %s", from, to, before, after)
		}
	}

	// By induction this holds for every state of the path.
	if len(path) > 1 {
		rest, err := plan.Path(path[1], to, plan.Walk{})
		if err != nil || !slices.Equal(rest, path[1:]) {
			t.Fatalf("%s to %s: %s, and from its second state %s (%v)", from, to, printed(path), printed(rest), err)
		}
	}
}

func beyond(before, after version.Version) bool {
	return after.Minor().Compare(before.Minor().Next()) > 0
}

func TestPath_VersionsToWalkThroughMustLieOnTheWay(t *testing.T) {
	t.Parallel()

	at := func(i int) []cluster.Within { return []cluster.Within{cluster.Index(i)} }
	walk := func() *scene { return newScene(3, 0).runs("1.11.2") }

	runPaths(t, map[string]pathCase{
		"beyond the target": {
			scene: walk().through("1.12.1", "1.14.0"), severity: cluster.Permanent, attribute: "intermediate_versions", within: at(1),
			says: []string{"1.14.0 is not on the path to Talos 1.13.4"},
		},
		"of the minor version of the target": {
			scene: walk().through("1.13.0"), severity: cluster.Permanent, attribute: "intermediate_versions", within: at(0),
			says: []string{"1.13.0 is of the minor version 1.13, in which the path to Talos 1.13.4 ends"},
		},
		"two of one minor version": {
			scene: walk().through("1.12.1", "1.12.3"), severity: cluster.Permanent, attribute: "intermediate_versions", within: at(1),
			says: []string{"1.12.1 and 1.12.3", "Keep one of them"},
		},
		"of Kubernetes, which is not managed": {
			scene: walk().through("1.33.1"), severity: cluster.Permanent, attribute: "intermediate_versions", within: at(0),
		},
		"of neither Talos nor Kubernetes": {
			scene: walk().through("1.20.1").asserts("1.34.2"), severity: cluster.Permanent, attribute: "intermediate_versions", within: at(0),
			says: []string{"is not on the path to Talos 1.13.4, Kubernetes 1.34.2"},
		},
	})

	for behaviour, s := range map[string]*scene{
		"on the way":              walk().through("1.12.1"),
		"behind the cluster":      newScene(3, 0).runs("1.12.1").through("1.12.1"),
		"at the target":           newScene(3, 0).runs("1.13.4").through("1.12.1"),
		"behind, of Kubernetes":   newScene(3, 0).through("1.33.1").asserts("1.34.2"),
		"a pre-release by choice": walk().through("1.12.0-rc.1"),
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if got := s.said(t).Findings; len(got) > 0 {
				t.Errorf("findings: %v", got)
			}
		})
	}

	if step := walk().through("1.12.1").said(t).Steps[0]; step.To.String() != "1.12.1" {
		t.Errorf("the first turn leads to %s, want 1.12.1", step.To)
	}
}

// TestRoute_TooOldIsSaidBeforeAnythingElse, even if only Kubernetes is to move, but not about what stays.
func TestRoute_TooOldIsSaidBeforeAnythingElse(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		talos, kubernetes string
		refused           bool
	}{
		"Talos moves":      {"1.13.4", "", true},
		"Kubernetes moves": {"", "1.31.2", true},
		"nothing moves":    {"", "1.30.1", false},
	} {
		scene := newScene(3, 2).runs("1.7.6").kubernetes("1.30.1")
		scene.target = cluster.Target{}

		if test.talos != "" {
			scene.aims(test.talos)
		}

		if test.kubernetes != "" {
			scene.asserts(test.kubernetes)
		}

		old := slices.DeleteFunc(scene.said(t).Findings, func(f cluster.Finding) bool {
			return !strings.Contains(f.Found, "support matrix") && !strings.Contains(f.Found, "too old")
		})
		if (len(old) == 1) != test.refused || test.refused && !strings.Contains(old[0].String(), "Talos 1.7.6 are too old to be upgraded") {
			t.Errorf("%s: %v", behaviour, old)
		}
	}
}
