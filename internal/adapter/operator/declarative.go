// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// declarative is the operator of a TalosControlPlane: it brings the cluster to the specs of that object, of its
// workers and of the machines of both.
type declarative struct {
	of     cluster.Reference
	access Access
}

// holdings are the objects that describe one cluster, sorted by name.
type holdings struct {
	plane    object
	workers  []object
	machines []machine
}

func (d *declarative) String() string { return d.of.String() }

// Report implements [cluster.Operator].
func (d *declarative) Report(ctx context.Context) (cluster.OperatorReport, error) {
	all, err := d.holdings(ctx)
	if err != nil {
		return cluster.OperatorReport{}, err
	}

	talos, failed := d.talosHalf(all)

	return cluster.OperatorReport{
		Deleting:    all.plane.deleting(),
		Talos:       talos,
		Kubernetes:  d.kubernetesHalf(all.plane),
		FailedNodes: failed,
	}, nil
}

// Hold implements [cluster.Operator]. It is not supported, because the operator always acts on the specs.
func (d *declarative) Hold(context.Context, string, string) error {
	return fmt.Errorf("unable to hold %s: %w: its operator brings the nodes to its spec.version at any time", d.of, cluster.ErrUnsupported)
}

// Settle implements [cluster.Operator].
func (d *declarative) Settle(context.Context, version.Version, version.Version) error { return nil }

// Release implements [cluster.Operator].
func (d *declarative) Release(context.Context, string) error { return nil }

// Ask implements [cluster.Operator]. ErrRefused means that the version is zero or, for Kubernetes, lower than that
// of an object. All objects are checked before the first one is changed.
func (d *declarative) Ask(ctx context.Context, product version.Product, to version.Version) error {
	if to.IsZero() {
		return unknown(d.of, product)
	}

	all, err := d.holdings(ctx)
	if err != nil {
		return err
	}

	name := field(product, "version", "kubeVersion")
	told := d.told(all, product)

	for _, one := range told {
		if err := raises(one, name, product, to); err != nil {
			return err
		}
	}

	for _, one := range told {
		if err := d.tell(ctx, one, name, product, to); err != nil {
			return err
		}
	}

	return nil
}

// Withdraw implements [cluster.Operator]. It is not supported, because no other version could replace the one in
// the specs.
func (d *declarative) Withdraw(_ context.Context, product version.Product, to version.Version) error {
	return fmt.Errorf("unable to withdraw %s %s from %s: %w: it only says what is to run", product.Name(), to, d.of, cluster.ErrUnsupported)
}

// addressee is an object whose version is to be set.
type addressee struct {
	of    cluster.Reference
	found object
}

// told returns the objects whose spec sets the version of a product, the control plane before the workers.
func (d *declarative) told(all holdings, product version.Product) []addressee {
	told := []addressee{{d.of, all.plane}}

	for _, worker := range all.workers {
		told = append(told, addressee{d.reference(workerKind, worker), worker})
	}

	if product == version.Kubernetes {
		return told
	}

	for _, one := range all.machines {
		// The others take the version of the object that they belong to.
		if one.own != "" {
			told = append(told, addressee{d.reference(machineKind, one.found), one.found})
		}
	}

	return told
}

// raises returns an error if the API server would reject the version because it is lower than the present one.
func raises(one addressee, name string, product version.Product, to version.Version) error {
	standing, err := version.Parse(one.found.text("spec", name))
	if err == nil && product == version.Kubernetes && to.Less(standing) {
		return fmt.Errorf("unable to ask %s for Kubernetes %s: %w: its spec.%s is %s already, and cannot be lowered",
			one.of, to, cluster.ErrRefused, name, standing)
	}

	return nil
}

func (d *declarative) tell(ctx context.Context, one addressee, name string, product version.Product, to version.Version) error {
	err := rewrite(ctx, d.access, one.of, one.found, func(found object) (map[string]any, error) {
		if err := raises(addressee{one.of, found}, name, product, to); err != nil {
			return nil, err
		}

		if says(found.text("spec", name), to) {
			return nil, nil
		}

		return map[string]any{"spec": map[string]any{name: to.Tag()}}, nil
	})

	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrNotFound) && one.of != d.of:
		// A worker or a machine may leave at any time.
		return nil
	default:
		return fmt.Errorf("unable to set spec.%s of %s to %s: %w", name, one.of, to.Tag(), err)
	}
}

// holdings reads the objects of the cluster. A kind that is not installed has none.
func (d *declarative) holdings(ctx context.Context) (holdings, error) {
	plane, err := d.access.Object(ctx, d.of)
	if err != nil {
		return holdings{}, err
	}

	all := holdings{plane: plane}

	workers, err := d.objects(ctx, workerKind)
	if err != nil {
		return holdings{}, err
	}

	versions := map[string]string{}

	for _, worker := range workers {
		if worker.text("spec", "controlPlaneRef", "name") == d.of.Name {
			all.workers = append(all.workers, worker)
			versions[worker.name()] = worker.text("spec", "version")
		}
	}

	machines, err := d.objects(ctx, machineKind)
	if err != nil {
		return holdings{}, err
	}

	for _, found := range machines {
		owned, ours := versions[found.text("spec", "workerRef", "name")]

		if found.text("spec", "controlPlaneRef", "name") == d.of.Name {
			owned, ours = all.plane.text("spec", "version"), true
		}

		if ours {
			all.machines = append(all.machines, machineFrom(found, owned))
		}
	}

	return all, nil
}

func (d *declarative) objects(ctx context.Context, kind string) ([]object, error) {
	listed, err := d.access.Objects(ctx, cluster.ObjectQuery{APIVersion: d.of.APIVersion, Kind: kind, Namespace: d.of.Namespace})
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return nil, err
	}

	objects := make([]object, 0, len(listed))
	for _, one := range listed {
		objects = append(objects, one)
	}

	return objects, nil
}

func (d *declarative) reference(kind string, found object) cluster.Reference {
	return cluster.Reference{APIVersion: d.of.APIVersion, Kind: kind, Namespace: d.of.Namespace, Name: found.name()}
}

// The states that matter here. There are other states of machines and control planes.
const (
	stateInstalling          = "Installing"
	stateBooting             = "Booting"
	stateUpgrading           = "Upgrading"
	stateUpgradingKubernetes = "UpgradingKubernetes"
	stateFailed              = "Failed"
	stateKubernetesFailed    = "KubernetesUpgradeFailed"
)

// mostNames bounds the names in a message.
const mostNames = 5

// machine is what a TalosMachine says about a machine.
type machine struct {
	found object
	// own is the version in the machine's own spec, owned that of the object that it belongs to, and observed the
	// version that it runs; each is without "v", or empty.
	own, owned, observed string
	state                string
}

func machineFrom(found object, owned string) machine {
	return machine{
		found:    found,
		own:      plain(found.text("spec", "version")),
		owned:    plain(owned),
		observed: plain(found.text("status", "observedVersion")),
		state:    found.text("status", "state"),
	}
}

// moving reports whether the machine is being changed. Its observed version may be the new one already, because the
// operator sets it once it has requested the upgrade.
func (m machine) moving() bool {
	return m.state == stateUpgrading || m.state == stateInstalling || m.state == stateBooting
}

func (m machine) failed() bool { return m.state == stateFailed }

// target returns the version that the machine should run but does not; empty if it is at rest.
func (m machine) target() string {
	for _, wanted := range []string{m.owned, m.own} {
		if wanted != "" && wanted != m.observed {
			return wanted
		}
	}

	if m.moving() {
		return m.observed
	}

	return ""
}

// talosHalf returns the progress of the machines and the names of those that failed. It reports no status that
// follows from the specs alone: without an operator, it would look as if one had reacted.
func (d *declarative) talosHalf(all holdings) (cluster.OperatorProduct, []string) {
	var (
		moving, failed []string
		observed       []version.Version
		waiting        int
		why            string
	)

	spec := plain(all.plane.text("spec", "version"))
	half := cluster.OperatorProduct{Status: protocol.StatusIdle}

	for _, one := range all.machines {
		target := one.target()
		if target != "" && (half.Target == "" || target == spec) {
			half.Target = target
		}

		if seen, err := version.Parse(one.observed); err == nil {
			observed = append(observed, seen)
		}

		switch {
		case one.moving():
			moving = append(moving, one.found.name())
		case one.failed():
			failed = append(failed, one.found.name())
			why = cmp.Or(why, one.found.failure())
		case target != "":
			waiting++
		}
	}

	if len(observed) > 0 {
		half.Current = version.Lowest(observed...).String()
	}

	if half.Target != "" {
		half.Undo = fmt.Sprintf("Set spec.version of %s, and of its workers and machines, back to %s.", d.of, cmp.Or(half.Current, "what it was"))
	}

	total := len(all.machines)

	switch {
	case len(moving) > 0:
		half.Status, half.Message = protocol.StatusInProgress, "Upgrading "+machines(moving)
		half.Progress = fmt.Sprintf("%d/%d", total-len(moving)-len(failed)-waiting, total)
	case len(failed) > 0:
		half.Status, half.Message = protocol.StatusFailed, because("Talos upgrade failed: "+machines(failed), why)
	case total == 0:
		half.Status = planeStatus(all.plane)
	}

	return half, failed
}

// planeStatus returns the status of an operator that has no machines.
func planeStatus(plane object) protocol.Status {
	switch plane.text("status", "state") {
	case stateUpgrading, stateInstalling:
		return protocol.StatusInProgress
	case stateFailed:
		return protocol.StatusFailed
	default:
		return protocol.StatusIdle
	}
}

// kubernetesHalf returns the progress of the control plane. A failure is reported whatever the versions are: asking
// for another version must not make it look new.
func (d *declarative) kubernetesHalf(plane object) cluster.OperatorProduct {
	wanted := plain(plane.text("spec", "kubeVersion"))
	half := cluster.OperatorProduct{Status: protocol.StatusIdle, Current: plain(plane.text("status", "observedKubeVersion"))}

	if wanted != half.Current {
		half.Target = wanted
	}

	switch state := plane.text("status", "state"); state {
	case stateUpgradingKubernetes:
		half.Status = protocol.StatusInProgress
		half.Message = fmt.Sprintf("Upgrading Kubernetes: %s → %s", half.Current, wanted)
	case stateKubernetesFailed, stateFailed:
		half.Status = protocol.StatusFailed
		half.Message = because(fmt.Sprintf("Kubernetes upgrade failed: %s is in the state %s", d.of, state), plane.failure())
	}

	return half
}

func because(what, why string) string {
	if why == "" {
		return what
	}

	return what + ": " + why
}

// machines names machines in a message.
func machines(names []string) string {
	noun := "machine "
	if len(names) > 1 {
		noun = "machines "
	}

	if more := len(names) - mostNames; more > 0 {
		names = append(slices.Clone(names[:mostNames]), fmt.Sprintf("%d more", more))
	}

	return noun + strings.Join(names, ", ")
}
