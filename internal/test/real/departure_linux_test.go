// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// doesWithoutDiscovery disables discovery for a while, so that only Kubernetes lists the nodes.
func (w *world) doesWithoutDiscovery(ctx context.Context, t *testing.T) {
	w.discover(ctx, t, false)
	w.observes(ctx, t)

	f := w.terraform(t, "")
	f.write(t, "  talosconfig_path = "+quote(w.talosconfigOf(ctx, t, "reader"))+"\n", kubernetesAt(unheldKubernetes))
	w.mustBeRefusedUntouched(ctx, t, f, "discovery lists none", "no kubeconfig was configured", "Set kubeconfig in the provider block")

	w.discover(ctx, t, true)
}

// discover enables or disables discovery on every machine, and waits until that has taken effect.
func (w *world) discover(ctx context.Context, t *testing.T, on bool) {
	t.Helper()

	want := 0
	if on {
		want = len(w.machines)
	}

	patch := fmt.Sprintf(`{"cluster": {"discovery": {"enabled": %t}}}`, on)

	for _, m := range w.machines {
		if _, err := w.talosctl(ctx, "--nodes", m.address.String(), "patch", "machineconfig", "--mode", "no-reboot", "--patch", patch); err != nil {
			t.Fatal(err)
		}
	}

	talos, _ := w.adapters(ctx, t)

	w.until(ctx, t, fmt.Sprintf("discovery lists %d machines", want), w.patience(), func(ctx context.Context) error {
		members, err := talos.Members(ctx)
		if err == nil && len(members) != want {
			err = fmt.Errorf("it lists %d", len(members))
		}

		return err
	})
}

// losesAWorker cuts the power of a worker and deletes its Node object. Discovery goes on listing the worker.
func (w *world) losesAWorker(ctx context.Context, t *testing.T) {
	running := w.kubernetesThatRuns(t)
	gone := w.machines[len(w.machines)-1]

	gone.cut()
	w.machines = w.machines[:len(w.machines)-1]

	if err := w.client(t).CoreV1().Nodes().Delete(ctx, gone.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	f := w.terraform(t, kubernetesAt(running))
	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	plan := w.terraform(t, kubernetesAt(unheldKubernetes)).plan(ctx, t).must(somethingToDo)

	// The CLI wraps long lines.
	said := flat(plan.output)

	for _, text := range []string{gone.name + ": discovery still lists this worker", "it is taken for removed and left alone", "Rolling upgrade of 2 of 2 nodes"} {
		if !strings.Contains(said, text) {
			t.Errorf("the plan does not say %q:\n%s", text, plan.output)
		}
	}
}
