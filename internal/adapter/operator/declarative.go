// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// declarative is the operator of a TalosControlPlane: it brings the cluster to what
// that, its workers and the machines of both say.
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

// Hold implements [cluster.Operator]: what the objects say is brought about always.
func (d *declarative) Hold(context.Context, string, string) error {
	return fmt.Errorf("unable to hold %s: %w: its operator brings the nodes to its spec.version at any time", d.of, cluster.ErrUnsupported)
}

// Settle implements [cluster.Operator].
func (d *declarative) Settle(context.Context, version.Version, version.Version) error { return nil }

// Release implements [cluster.Operator].
func (d *declarative) Release(context.Context, string) error { return nil }

// Ask implements [cluster.Operator]. ErrRefused means that the version is lower than
// the one that the object says, of Kubernetes, and that nothing was changed.
func (d *declarative) Ask(ctx context.Context, half cluster.Half, to version.Version) error {
	if to.IsZero() {
		return unknown(d.of, half)
	}

	all, err := d.holdings(ctx)
	if err != nil {
		return err
	}

	name := field(half, "version", "kubeVersion")
	told := d.told(all, half)

	for _, one := range told {
		if err := raises(one, name, half, to); err != nil {
			return err
		}
	}

	for _, one := range told {
		if err := d.tell(ctx, one, name, half, to); err != nil {
			return err
		}
	}

	return nil
}

// Withdraw implements [cluster.Operator]: there is no version that the objects could
// say instead.
func (d *declarative) Withdraw(_ context.Context, half cluster.Half, to version.Version) error {
	return fmt.Errorf("unable to withdraw %s %s from %s: %w: it only says what is to run", half.Name(), to, d.of, cluster.ErrUnsupported)
}

// addressee is an object that is to say another version.
type addressee struct {
	of    cluster.Reference
	found object
}

// told are the objects that say which version a half is to run, the control plane
// before the workers.
func (d *declarative) told(all holdings, half cluster.Half) []addressee {
	told := []addressee{{d.of, all.plane}}

	for _, worker := range all.workers {
		told = append(told, addressee{d.reference(workerKind, worker), worker})
	}

	if half == cluster.HalfKubernetes {
		return told
	}

	for _, one := range all.machines {
		// The others go by the object that they belong to.
		if one.own != "" {
			told = append(told, addressee{d.reference(machineKind, one.found), one.found})
		}
	}

	return told
}

// raises refuses what the API server would refuse, before anything is changed.
func raises(one addressee, name string, half cluster.Half, to version.Version) error {
	standing, err := version.Parse(one.found.text("spec", name))
	if err == nil && half == cluster.HalfKubernetes && to.Less(standing) {
		return fmt.Errorf("unable to ask %s for Kubernetes %s: %w: its spec.%s is %s already, and cannot be lowered",
			one.of, to, cluster.ErrRefused, name, standing)
	}

	return nil
}

func (d *declarative) tell(ctx context.Context, one addressee, name string, half cluster.Half, to version.Version) error {
	err := rewrite(ctx, d.access, one.of, one.found, func(found object) (map[string]any, error) {
		if err := raises(addressee{one.of, found}, name, half, to); err != nil {
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

// holdings reads the objects of the cluster. Kinds that are not installed have
// none.
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
