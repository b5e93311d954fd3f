// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// interrupter cancels a run a moment after a step has begun.
type interrupter struct {
	step      cluster.NodeStep
	component cluster.Component
	after     time.Duration
	cancel    context.CancelFunc
	node      string
}

// Observe implements [cluster.Observer].
func (i *interrupter) Observe(event cluster.Event) {
	if i.node != "" || event.Kind != cluster.EventNodeStep || event.Step != i.step || event.Component != i.component || event.Node == "" {
		return
	}

	i.node = event.Node

	if i.after == 0 {
		i.cancel()

		return
	}

	time.AfterFunc(i.after, i.cancel)
}

// TestInterrupt_SaysWhatWasGoingOn: whoever presses Ctrl-C reads which node was in the
// middle of what, and what to do. What is a clause of the step with <node> in it.
func TestInterrupt_SaysWhatWasGoingOn(t *testing.T) {
	t.Parallel()

	kubelet, apiServer := cluster.Kubelet, cluster.APIServer

	for name, test := range map[string]struct {
		step      cluster.NodeStep
		component cluster.Component
		after     time.Duration
		legacy    bool
		what      string
		// undone is true if nothing is left of it on the node.
		undone bool
	}{
		"cordon":         {step: cluster.StepCordon, what: "<node> was being cordoned", undone: true},
		"drain":          {step: cluster.StepDrain, what: "<node> was being drained", undone: true},
		"install":        {step: cluster.StepInstall, after: 2 * time.Second, what: "Talos 1.13.4 was being installed on <node>"},
		"legacy upgrade": {step: cluster.StepLegacy, after: time.Second, legacy: true, what: "Talos 1.13.4 was being installed on <node>"},
		"reboot":         {step: cluster.StepReturn, after: 5 * time.Second, what: "<node> was rebooting"},
		"etcd":           {step: cluster.StepEtcd, what: "waiting for etcd to be healthy with <node>"},
		"ready":          {step: cluster.StepReady, what: "waiting for <node> to be Ready in Kubernetes"},
		"uncordon":       {step: cluster.StepUncordon, what: "<node> was being uncordoned"},
		"configure":      {step: cluster.StepConfigure, component: apiServer, what: "<node> was being configured to run kube-apiserver 1.35.2"},
		"restart":        {step: cluster.StepRestart, component: kubelet, after: time.Second, what: "waiting for kubelet on <node> to run 1.35.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			options := model.Options{ControlPlanes: 3, Workers: 1}
			if test.legacy {
				options.Talos = fromLegacy
			}

			inCluster(t, setup{Options: options}, func(r *rig) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				watching := &interrupter{step: test.step, component: test.component, after: test.after, cancel: cancel}

				request := to(toLifecycle)
				if test.component != "" {
					request = kube(toKubernetes)
				}

				err := r.WorkerBeside("run-1", nil, watching).Apply(ctx, request)

				var failed *say.Failure
				if !errors.As(err, &failed) || !errors.Is(err, context.Canceled) {
					t.Fatalf("got %v, want a failure of a run that was interrupted", err)
				}

				want := "It was interrupted while " + strings.ReplaceAll(test.what, "<node>", watching.node)
				if seen := strings.TrimSuffix(failed.Seen, "."); seen != want && !strings.HasPrefix(seen, want+"; last seen: ") {
					t.Errorf("it says %q, want %q", failed.Seen, want)
				}

				remedy := "Run terraform apply again: it continues with this node."
				if test.undone {
					remedy = "Run terraform apply again to continue where the cluster is."
				}

				if failed.Remedy != remedy || failed.Node != watching.node {
					t.Errorf("of %s it says %q, want it to be about %s and to say %q", failed.Node, failed.Remedy, watching.node, remedy)
				}
			})
		})
	}
}
