// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// meddling makes an interceptor that does more, in the name of a client, than the
// engine asks for.
type meddling func(*rig, *ports.Client) ports.Interceptor

// hand is the client of a run without the engine that it belongs to.
type hand struct {
	*ports.Client

	rig *rig
}

// behind has a run do something more after its nth call of a method on a node.
func behind(method, node string, nth int32, do func(context.Context, hand)) meddling {
	return meddled(method, node, nth, func(ctx context.Context, h hand, next func(context.Context) error) error {
		err := next(ctx)
		do(ctx, h)

		return err
	})
}

// ahead has it do so before that call.
func ahead(method, node string, nth int32, do func(context.Context, hand)) meddling {
	return meddled(method, node, nth, func(ctx context.Context, h hand, next func(context.Context) error) error {
		do(ctx, h)

		return next(ctx)
	})
}

func meddled(
	method, node string, nth int32, around func(ctx context.Context, h hand, next func(context.Context) error) error,
) meddling {
	return func(r *rig, client *ports.Client) ports.Interceptor {
		var calls atomic.Int32

		h := hand{Client: r.Client(client.Name()), rig: r}

		return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == method && call.Node == node && calls.Add(1) == nth {
				return around(ctx, h, next)
			}

			return next(ctx)
		}
	}
}

// must fails the test when the bug could not be carried out: then it shows
// nothing.
func (h hand) must(err error) {
	if err != nil {
		h.rig.T.Errorf("the planted bug came to nothing: %v", err)
	}
}

// look observes everything that a disruptive step rests on.
func (h hand) look(ctx context.Context) {
	_, err := h.Nodes(ctx)
	h.must(err)

	for _, state := range h.rig.World().Nodes() {
		if !state.Reachable {
			continue
		}

		machine, err := h.Machine(ctx, state.Name, nil)
		h.must(err)

		if machine.Role == cluster.ControlPlane {
			_, err = h.Etcd(ctx, state.Name, true)
			h.must(err)
		}
	}
}

// reboot looks around and reboots a node.
func (h hand) reboot(ctx context.Context, node string) {
	h.look(ctx)
	h.must(h.Reboot(ctx, node, cluster.RebootDefault))
}

// configure makes a component of a node run another version than the one that its
// configuration names, without a look.
func (h hand) configure(ctx context.Context, node string, component cluster.Component, from, to string) {
	repository, _, _ := strings.Cut(h.image(node, component), ":v")
	h.must(h.Configure(ctx, node, cluster.ImageChange{Component: component, From: repository + ":v" + from, To: repository + ":v" + to}))
}

// image is what a component runs from.
func (h hand) image(node string, component cluster.Component) string {
	state := h.rig.State(node)
	if component == cluster.Kubelet {
		return state.KubeletService.Image
	}

	return state.StaticPods[string(component)].Image
}

// claims writes an annotation.
func (h hand) claims(ctx context.Context, key, value string) {
	h.must(h.Annotate(ctx, map[string]string{key: value}))
}

// reapply applies the configuration that a node has.
func (h hand) reapply(ctx context.Context, node string) error {
	state := h.rig.State(node)
	_, err := h.rig.World().ApplyConfig(ctx, node, state.Config, model.ApplyNoReboot, false)

	return err
}
