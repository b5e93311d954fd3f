// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestHalfOpenConnectionToTheKubernetesAPI lets all that is sent to the Kubernetes
// API vanish for a while, in the middle of a turn: nothing is done meanwhile that
// needs the lease, and the run goes on when it is back.
func TestHalfOpenConnectionToTheKubernetesAPI(t *testing.T) {
	unraced(t)

	for _, away := range some(7*time.Second, 2*time.Minute) {
		t.Run(away.String(), func(t *testing.T) {
			tested := lifecycleHop()

			inBubble(t, away.String(), tested.given, func(r *rig) {
				p := r.start("run-1")
				r.struckBy(p, tested, aim{point: first(methodInstall, "worker-0"), variant: meddled, within: inFlight, meddle: func() {
					p.network.silence(apiHost)
					time.AfterFunc(away, func() { p.network.revive(apiHost) })
				}})
			})
		})
	}
}

// TestEverySocketBreaksAtOnce cuts all connections of a process again and again, as
// a laptop does that changes its network.
func TestEverySocketBreaksAtOnce(t *testing.T) {
	if few() {
		t.Skip("the other tests break one at a time")
	}

	tested := lifecycleHop()

	inBubble(t, tested.name, tested.given, func(r *rig) {
		// A pull begins anew on a new connection, so that there has to be time for one.
		const pause = 71*time.Second + 3*time.Millisecond

		p := r.start("run-1")
		broken := 0

		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})

		stop := func() {
			cancel()
			<-done
		}
		defer stop()

		go func() {
			defer close(done)

			for pause := time.NewTicker(pause); ; broken++ {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
					p.network.sever(func(string) bool { return true })
				}
			}
		}()

		r.must(p, tested.request)
		stop()
		r.converged(tested.request)
		r.Once()

		if broken < 8 {
			r.T.Errorf("the connections broke %d times, want more", broken)
		}

		if said := strings.Join(p.texts(cluster.EventWaiting), "\n"); strings.Contains(said, "certificate") {
			r.T.Errorf("a broken connection was taken for a refused certificate:\n%s", said)
		}
	})
}
