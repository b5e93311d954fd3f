// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The states that the operator writes, and the fields with what runs.
const (
	stateReady               = "Ready"
	stateUpgrading           = "Upgrading"
	stateFailed              = "Failed"
	stateUpgradingKubernetes = "UpgradingKubernetes"
	stateKubernetesFailed    = "KubernetesUpgradeFailed"

	observedKube  = "observedKubeVersion"
	observedTalos = "observedVersion"
)

// declarative is the operator of one TalosControlPlane with its workers.
type declarative struct {
	options Options
	of      cluster.Reference
	hands   *hands
	// machine is the TalosMachine that is being upgraded, to is the version that its machine is brought to.
	machine, to string
	roll        *roll
	// gaveUp are the versions that it does not try again, by object.
	gaveUp map[string]string
}

func newDeclarative(options Options) *declarative {
	return &declarative{
		options: options,
		of: cluster.Reference{
			APIVersion: DeclarativeAPIVersion, Kind: ControlPlaneKind, Namespace: options.Namespace, Name: options.Name,
		},
		hands:  &hands{options: options},
		gaveUp: map[string]string{},
	}
}

// pass reads the objects once, and takes the next step.
func (d *declarative) pass(ctx context.Context) {
	plane, err := d.options.Objects.Get(ctx, d.of)
	if err != nil || text(plane, keyMetadata, "deletionTimestamp") != "" || d.options.Habits.Deaf {
		return
	}

	machines, err := d.machines(ctx, plane)
	if err != nil {
		return
	}

	if d.machine != "" {
		d.follow(ctx, machines)

		return
	}

	if d.roll == nil && d.next(ctx, machines) {
		return
	}

	d.kubernetes(ctx, plane)
}

// machines returns the TalosMachines of the control plane and of its workers, those of the control plane first,
// after copying the versions to them.
func (d *declarative) machines(ctx context.Context, plane map[string]any) ([]map[string]any, error) {
	objects, namespace := d.options.Objects, d.options.Namespace

	workers, err := objects.List(ctx, DeclarativeAPIVersion, WorkerKind, namespace)
	if err != nil {
		return nil, err
	}

	machines, err := objects.List(ctx, DeclarativeAPIVersion, MachineKind, namespace)
	if err != nil {
		return nil, err
	}

	owned, err := d.handDown(ctx, plane, "controlPlaneRef", machines)
	if err != nil {
		return nil, err
	}

	for _, worker := range workers {
		if text(worker, keySpec, "controlPlaneRef", keyName) != d.options.Name {
			continue
		}

		if !d.options.Habits.KeepsWorkers {
			for _, field := range []string{keyVersion, keyKubeVersion} {
				if err := d.copyDown(ctx, plane, worker, field); err != nil {
					return nil, err
				}
			}
		}

		more, err := d.handDown(ctx, worker, "workerRef", machines)
		if err != nil {
			return nil, err
		}

		owned = append(owned, more...)
	}

	return owned, nil
}

// handDown copies the version of an owner to its machines, and returns them.
func (d *declarative) handDown(
	ctx context.Context, owner map[string]any, reference string, machines []map[string]any,
) ([]map[string]any, error) {
	var owned []map[string]any

	for _, machine := range machines {
		if text(machine, keySpec, reference, keyName) != referenceOf(owner).Name {
			continue
		}

		if err := d.copyDown(ctx, owner, machine, keyVersion); err != nil {
			return nil, err
		}

		owned = append(owned, machine)
	}

	return owned, nil
}

// copyDown copies the version of an owner to an object.
func (d *declarative) copyDown(ctx context.Context, owner, object map[string]any, field string) error {
	wanted := text(owner, keySpec, field)
	if wanted == "" || text(object, keySpec, field) == wanted {
		return nil
	}

	section(object, keySpec)[field] = wanted

	return d.options.Objects.Patch(ctx, referenceOf(object), "", map[string]any{keySpec: map[string]any{field: wanted}})
}

// next begins to upgrade a machine, and reports whether there is one.
func (d *declarative) next(ctx context.Context, machines []map[string]any) bool {
	for _, machine := range machines {
		of, wanted := referenceOf(machine), text(machine, keySpec, keyVersion)

		if observed := d.observe(ctx, machine); observed == wanted || d.gaveUp[of.Name] == wanted {
			continue
		}

		if d.options.Habits.Lies {
			d.tell(ctx, of, map[string]any{observedTalos: wanted, keyState: stateReady})

			return true
		}

		state, err := d.options.World.Node(text(machine, keySpec, "endpoint"))
		if err != nil {
			d.failMachine(ctx, of, wanted, fmt.Errorf("the machine does not exist: %w", err))

			return true
		}

		d.beginMachine(ctx, of, wanted, state)

		return true
	}

	return false
}

// observe returns what the operator believes a machine runs: what it wrote itself or, with the habit of undoing,
// what the machine reports.
func (d *declarative) observe(ctx context.Context, machine map[string]any) string {
	observed := text(machine, partStatus, observedTalos)

	state, err := d.options.World.Node(text(machine, keySpec, "endpoint"))
	if !d.options.Habits.Undoes || err != nil || !state.Reachable || "v"+state.Talos == observed {
		return observed
	}

	d.tell(ctx, referenceOf(machine), map[string]any{observedTalos: "v" + state.Talos})

	return "v" + state.Talos
}

func (d *declarative) beginMachine(ctx context.Context, of cluster.Reference, wanted string, state model.NodeState) {
	if !d.options.Habits.Stalls {
		if err := d.hands.begin(state, plain(wanted)); err != nil {
			d.failMachine(ctx, of, wanted, err)

			return
		}
	}

	d.machine, d.to = of.Name, wanted

	if !d.options.Habits.StaleCompleted {
		d.tell(ctx, of, map[string]any{keyState: stateUpgrading})
	}
}

// follow waits for the machine that is being upgraded.
func (d *declarative) follow(ctx context.Context, machines []map[string]any) {
	if d.options.Habits.Stalls {
		return
	}

	of := cluster.Reference{APIVersion: DeclarativeAPIVersion, Kind: MachineKind, Namespace: d.options.Namespace, Name: d.machine}

	if d.hands.at != nil {
		back, err := d.hands.back(plain(d.to))

		switch {
		case err != nil:
			d.failMachine(ctx, of, d.to, err)

			return
		case !back:
			return
		}
	}

	if !d.tell(ctx, of, map[string]any{observedTalos: d.to, keyState: stateReady, "conditions": []any{
		condition(d.options.Clock.Now(), "Ready", "True", "Upgraded", "the machine runs "+d.to),
	}}) {
		return
	}

	for _, machine := range machines {
		if name := referenceOf(machine).Name; name == d.machine {
			section(machine, partStatus)[observedTalos] = d.to
		}
	}

	d.machine = ""
	d.next(ctx, machines)
}

// failMachine reports that a machine could not be upgraded.
func (d *declarative) failMachine(ctx context.Context, of cluster.Reference, wanted string, why error) {
	d.machine, d.hands.at = "", nil

	if d.options.Habits.StaysFailed {
		d.gaveUp[of.Name] = wanted
	}

	d.tell(ctx, of, map[string]any{keyState: stateFailed, "conditions": []any{
		condition(d.options.Clock.Now(), "Ready", "False", "UpgradeFailed", why.Error()),
	}})
}

// kubernetes brings Kubernetes to the version in the control plane's object.
func (d *declarative) kubernetes(ctx context.Context, plane map[string]any) {
	wanted := text(plane, keySpec, keyKubeVersion)

	if wanted == "" || text(plane, partStatus, observedKube) == wanted || d.gaveUp[ControlPlaneKind] == wanted {
		d.roll = nil

		return
	}

	if d.options.Habits.Lies {
		d.tell(ctx, d.of, map[string]any{observedKube: wanted, keyState: stateReady})

		return
	}

	if d.roll == nil || d.roll.to != plain(wanted) {
		if err := d.checkKubernetes(wanted); err != nil {
			d.failKubernetes(ctx, wanted, err)

			return
		}

		d.roll = &roll{hands: d.hands, to: plain(wanted)}
	}

	if state := text(plane, partStatus, keyState); state != stateUpgradingKubernetes && !d.options.Habits.StaleCompleted {
		if !d.tell(ctx, d.of, map[string]any{keyState: stateUpgradingKubernetes}) {
			return
		}
	}

	if d.options.Habits.Stalls {
		return
	}

	done, _, err := d.roll.step(ctx)

	switch {
	case err != nil:
		d.failKubernetes(ctx, wanted, err)
	case done && d.tell(ctx, d.of, map[string]any{observedKube: wanted, keyState: stateReady}):
		d.roll = nil
	}
}

// checkKubernetes returns why Kubernetes cannot be brought to the version.
func (d *declarative) checkKubernetes(wanted string) error {
	target, err := version.Parse(wanted)
	if err != nil {
		return err
	}

	if talos := lowestTalos(d.options.World); !supports(talos, target) {
		return fmt.Errorf("talos %s does not run Kubernetes %s", talos, target)
	}

	return checkKubernetes(d.options.World, target)
}

func (d *declarative) failKubernetes(ctx context.Context, wanted string, why error) {
	d.roll = nil

	if d.options.Habits.StaysFailed {
		d.gaveUp[ControlPlaneKind] = wanted
	}

	d.tell(ctx, d.of, map[string]any{keyState: stateKubernetesFailed, "conditions": []any{
		condition(d.options.Clock.Now(), "KubernetesUpgraded", "False", "JobFailed", why.Error()),
	}})
}

// tell writes fields of a status, and reports whether that succeeded; if not, the next pass finds the difference
// again.
func (d *declarative) tell(ctx context.Context, of cluster.Reference, status map[string]any) bool {
	return d.options.Objects.Patch(ctx, of, partStatus, map[string]any{partStatus: status}) == nil
}
