// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// upgradeMachines takes the next step of an upgrade of Talos.
func (v *vitistack) upgradeMachines() {
	to := v.job.target.String()

	if at := v.hands.at; at != nil {
		back, err := v.hands.back(to)
		if err != nil {
			v.failAt(err, at.node)

			return
		}

		if !back {
			return
		}
	}

	states := workersFirst(v.options.World)

	for _, state := range states {
		if state.Talos == to {
			continue
		}

		// Nothing is begun while etcd has no quorum.
		if !v.options.World.EtcdQuorum() {
			return
		}

		if err := v.hands.begin(state, to); err != nil {
			v.failAt(err, state.Name)

			return
		}

		v.working(state.Name)

		return
	}

	if v.job.undo {
		v.job = nil

		return
	}

	v.complete(version.Talos, v.job.target)
}

// failAt gives the job up because of a node.
func (v *vitistack) failAt(why error, node string) {
	if v.job.undo {
		v.job, v.hands.at = nil, nil

		return
	}

	v.say(v.job.half, "progress", v.progress())
	v.fail(v.job.half, v.job.target.String(), why, node)
}

// rollKubernetes takes the next step of an upgrade of Kubernetes.
func (v *vitistack) rollKubernetes(ctx context.Context) {
	done, node, err := v.job.roll.step(ctx)

	switch {
	case err != nil:
		v.failAt(err, node)
	case done:
		v.complete(version.Kubernetes, v.job.target)
	case node != "":
		v.working(node)
	}
}

// working says at which node the operator is.
func (v *vitistack) working(node string) {
	if v.job.undo {
		return
	}

	product := v.job.half
	message := fmt.Sprintf("Upgrading node %s (%s)", node, v.progressWith(1))

	v.say(product, "message", message)
	v.say(product, "progress", v.progress())
	v.standing(product, "Upgrading"+product.Name(), "True", "InProgress", message)
}

// progress is how many machines are where the job takes them, of all.
func (v *vitistack) progress() string { return v.progressWith(0) }

func (v *vitistack) progressWith(under int) string {
	states := v.options.World.Nodes()
	done := 0

	for _, state := range states {
		switch to := v.job.target.String(); {
		case v.job.half == version.Talos && state.Talos == to:
			done++
		case v.job.half == version.Kubernetes && atKubernetes(state, to):
			done++
		}
	}

	return fmt.Sprintf("%d/%d", min(done+under, len(states)), len(states))
}
