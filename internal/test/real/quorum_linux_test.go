// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// keepsQuorum upgrades Talos on the last of three control planes, whose members of etcd vote with it, and then
// Kubernetes on all of them. Talos refuses an upgrade in a container, so the other two are on hold in the first half.
func (w *world) keepsQuorum(ctx context.Context, t *testing.T) {
	m := w.machines[2]
	before := w.boot(ctx, t)

	w.mustVote(ctx, t)

	f := w.terraform(t, request{talos: nextTalos, held: w.machines[:2], arguments: "  node_timeout = \"1h\"\n"}.resource())
	f.plan(ctx, t).must(somethingToDo, nextTalos)

	apply := f.begin(ctx, t)
	apply.during(w, m.name+" has installed", func() bool { return m.printed(t, installed) > 0 })
	apply.kill()

	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	w.mustHaveUpgraded(ctx, t, m, nextTalos, 1, before[m.name])
	w.mustHaveNoJournal(ctx, t)
	w.mustVote(ctx, t)

	f.write(t, "  talosconfig_path = "+quote(w.talosconfig)+"\n", kubernetesAt(kubernetesVersions[1].String()))
	end := w.watchServers(ctx, t)
	f.apply(ctx, t).must(nothingToDo)
	end()

	f.plan(ctx, t).must(nothingToDo)

	w.mustServe(ctx, t, kubernetesVersions[1])
	w.mustHaveNoJournal(ctx, t)
	w.mustVote(ctx, t)
}

// mustVote fails the test unless every machine has a member of etcd that votes, and all of them agree on that.
func (w *world) mustVote(ctx context.Context, t *testing.T) {
	t.Helper()

	for _, m := range w.machines {
		w.until(ctx, t, "etcd on "+m.name+" has all members", w.patience(), func(ctx context.Context) error {
			said, err := w.talosctl(ctx, "--nodes", m.address.String(), "etcd", "members")
			if err != nil {
				return err
			}

			for _, other := range w.machines {
				if !strings.Contains(said, other.name) {
					return fmt.Errorf("%s is missing in\n%s", other.name, said)
				}
			}

			if strings.Contains(said, "true") {
				return fmt.Errorf("there is a learner:\n%s", said)
			}

			return nil
		})
	}
}

// watchServers notes which API servers refuse connections, until the returned function is called. That fails the test
// unless each of them was away at some time, and no two at once. One that only answers late is not away.
func (w *world) watchServers(ctx context.Context, t *testing.T) (end func()) {
	t.Helper()

	ctx, cancel := context.WithCancel(ctx)
	seen, together, done := map[string]bool{}, map[string]bool{}, make(chan struct{})

	go func() {
		defer close(done)

		for ctx.Err() == nil {
			away := w.awayServers(ctx)
			for _, name := range away {
				seen[name] = true
			}

			if len(away) > 1 {
				together[strings.Join(away, " and ")] = true
			}

			select {
			case <-ctx.Done():
			case <-time.After(watchPause):
			}
		}
	}()

	return func() {
		cancel()
		<-done

		for _, m := range w.machines {
			if !seen[m.name] {
				t.Errorf("the API server of %s was never away: it was not replaced, or nobody watched", m.name)
			}
		}

		for names := range together {
			t.Errorf("the API servers of %s were away at once", names)
		}
	}
}

// An API server that is replaced is away for seconds. watchPause is the pause between two looks at all of them, and
// watchPatience how long one of them may take to answer.
const watchPause, watchPatience = 200 * time.Millisecond, 2 * time.Second

// awayServers returns the machines whose API servers refuse connections now.
func (w *world) awayServers(ctx context.Context) (away []string) {
	refused := make([]bool, len(w.machines))

	var looks sync.WaitGroup

	for index, m := range w.machines {
		looks.Go(func() { refused[index] = refuses(ctx, net.JoinHostPort(m.address.String(), "6443")) })
	}

	looks.Wait()

	for index, m := range w.machines {
		if refused[index] {
			away = append(away, m.name)
		}
	}

	return away
}

// refuses reports whether nothing listens at the address.
func refuses(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()

	var dialer net.Dialer

	reached, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = reached.Close()
	}

	return errors.Is(err, syscall.ECONNREFUSED)
}

// mustServe fails the test unless every API server runs the release.
func (w *world) mustServe(ctx context.Context, t *testing.T, release version.Version) {
	t.Helper()

	pods, err := w.client(t).CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}

	if len(pods.Items) != len(w.machines) {
		t.Fatalf("there are %d API servers, want %d", len(pods.Items), len(w.machines))
	}

	for index := range pods.Items {
		if image := pods.Items[index].Spec.Containers[0].Image; !strings.HasSuffix(image, ":v"+release.String()) {
			t.Errorf("%s runs %s, want %s", pods.Items[index].Name, image, release)
		}
	}
}
