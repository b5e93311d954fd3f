// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Versions of a walk over three release lines, by both APIs.
const (
	walkFrom = "1.11.5"
	walkTo   = "1.14.1"
)

// walk is a request that leads through two release lines in between, by exact
// versions, so that tests do not change with the list of releases.
func walk(t testing.TB, share string) engine.Request {
	t.Helper()

	request := sharing(t, walkTo, share)
	request.Policy.AllowIntermediate = true
	request.Policy.Intermediate = []version.Version{version.MustParse("1.12.6"), version.MustParse("1.13.4")}

	return request
}

// walked are the versions in the order in which a node booted them.
func (r *rig) walked(node string) []string {
	var versions []string

	for _, boot := range r.Judge.Of(history.KindBoot) {
		if boot.Node == node {
			versions = append(versions, boot.Detail["talos"])
		}
	}

	return versions
}

func TestWalkOverThreeReleaseLines(t *testing.T) {
	for share, together := range map[string]int{"1": 1, "50%": 2} {
		t.Run(share, func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 3, Workers: 4, Talos: walkFrom, Seed: 73},
				Judging: []checker.Option{checker.MaxUnavailable(together)},
			}

			inCluster(t, given, func(r *rig) {
				r.AddApp("web", 4, &ports.Budget{MinAvailable: 2})

				w := r.Worker("run-1")
				r.Must(w, walk(t, share))
				r.At(walkTo)

				want := []string{"1.12.6", "1.13.4", walkTo}
				for name := range r.Judge.Verdict().Nodes {
					if got := r.walked(name); !slices.Equal(got, want) {
						t.Errorf("%s booted %v, want %v", name, got, want)
					}
				}

				r.hopsDoNotOverlap(want)
				r.Settled(walkTo)
				tellsOfEachHop(t, w, want, 7)
			})
		})
	}
}

// TestCanariesLeadEachHop: in each release line everything waits for them.
func TestCanariesLeadEachHop(t *testing.T) {
	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 4, Talos: walkFrom, Seed: 157},
		Judging: []checker.Option{checker.MaxUnavailable(2), checker.Canary("worker-2"), checker.Held("worker-3")},
	}

	inCluster(t, given, func(r *rig) {
		request := held(walk(t, "2"), "worker-3")
		request.Target.Talos = version.MustParse("1.13.4")
		request.Policy.Intermediate = request.Policy.Intermediate[:1]
		request.Policy.Canary, request.Policy.Settle = []string{"worker-2"}, time.Minute

		r.Must(r.Worker("run-1"), request)
		r.Sound()
		r.Tidy()
		r.rested(time.Minute)

		for _, version := range []string{"1.12.6", "1.13.4"} {
			for _, boot := range r.Judge.Of(history.KindBoot) {
				if boot.Detail["talos"] == version {
					if boot.Node != "worker-2" {
						t.Errorf("%s booted %s first", boot.Node, version)
					}

					break
				}
			}
		}
	})
}

// hopsDoNotOverlap fails the test when a node booted a version before every
// node had booted the one before it.
func (r *rig) hopsDoNotOverlap(order []string) {
	r.T.Helper()

	hop := 0

	for _, boot := range r.Judge.Of(history.KindBoot) {
		switch at := slices.Index(order, boot.Detail["talos"]); {
		case at < hop:
			r.T.Errorf("%s booted %s after another node had booted %s", boot.Node, boot.Detail["talos"], order[hop])
		default:
			hop = at
		}
	}
}

// tellsOfEachHop fails the test unless every node was said to begin and to end
// each hop.
func tellsOfEachHop(t testing.TB, w *worker, versions []string, nodes int) {
	t.Helper()

	told := map[string]int{}
	for _, event := range w.Events() {
		told[fmt.Sprintf("%s %s", event.Kind, event.To)]++
	}

	for _, version := range versions {
		for _, kind := range []cluster.EventKind{cluster.EventNodeStarted, cluster.EventNodeDone} {
			if count := told[fmt.Sprintf("%s %s", kind, version)]; count != nodes {
				t.Errorf("%d events %s to %s, want %d", count, kind, version, nodes)
			}
		}
	}
}

// TestWalkGoesOnAfterACrash strikes a walk in each of its hops.
func TestWalkGoesOnAfterACrash(t *testing.T) {
	stride := 31
	if testing.Short() || raceEnabled {
		stride = 131
	}

	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 3, Talos: walkFrom, Seed: 79},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}
	request := walk(t, "2")
	methods := mutationsOf(t, given, request)

	for mutation := 1; mutation <= len(methods) && !t.Failed(); mutation += stride {
		for _, kind := range harness.Crashes() {
			if kind != dieDuring || lasts(methods[mutation-1]) {
				crashOnce(t, given, request, kind, mutation)
			}
		}
	}
}

// missing is a cluster whose nodes cannot get one image.
type missing struct {
	*ports.Client

	tag string
}

func (m *missing) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	if strings.HasSuffix(image, m.tag) {
		return fmt.Errorf("pull %s: manifest unknown: %w", image, cluster.ErrNotFound)
	}

	return m.Client.Pull(ctx, address, image, api)
}

// TestImageOfALaterHopIsMissedBeforeTheFirstCordon: what the last hop needs is
// found out before the first one has begun.
func TestImageOfALaterHopIsMissedBeforeTheFirstCordon(t *testing.T) {
	for _, tag := range []string{":v1.13.4", ":v" + walkTo} {
		t.Run(tag, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: walkFrom, Seed: 83}}, func(r *rig) {
				client := r.Client("run-1")
				w := r.WorkerOver(client, &missing{Client: client, tag: tag}, client)

				failed := failure(t, w.Apply(context.Background(), walk(t, "1")), cluster.ErrNotFound, "worker-0")
				if !strings.Contains(failed.Error(), tag) {
					t.Errorf("the image is not named: %v", failed)
				}

				if cordons := r.Judge.Of(history.KindCordon); len(cordons) != 0 {
					t.Errorf("nodes were cordoned: %+v", cordons)
				}

				r.Sound()
				r.Tidy()
			})
		})
	}
}
