// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The kinds of both operators.
const (
	VitistackAPIVersion   = "vitistack.io/v1alpha1"
	VitistackKind         = "KubernetesCluster"
	DeclarativeAPIVersion = "talos.alperen.cloud/v1alpha1"
	ControlPlaneKind      = "TalosControlPlane"
	WorkerKind            = "TalosWorker"
	MachineKind           = "TalosMachine"
)

// clusterLabel is the label by which the operator finds the Secret of a cluster.
const clusterLabel = "cluster.vitistack.io/cluster-id"

// Seed is what an operator has written before anything is upgraded.
type Seed struct {
	// Namespace and Name are those of the KubernetesCluster or of the
	// TalosControlPlane.
	Namespace, Name string
	// ClusterID is spec.data.clusterId; Name if empty.
	ClusterID string
	// Prefix is what precedes the cluster's ID in the Secret's name.
	Prefix string
	// WithV writes the versions in the Secret with "v".
	WithV bool
	// Talosconfig and Kubeconfig are what the Secret holds; without a key if nil.
	Talosconfig, Kubeconfig []byte
	// Annotations are keys without their prefix, as earlier upgrades left them.
	Annotations map[string]string
}

// SeedVitistack creates the KubernetesCluster of the world, Ready, and the Secret next to it. The namespace has to
// exist if the API has namespaces.
func SeedVitistack(ctx context.Context, objects Objects, world *model.World, seed Seed) (cluster.Reference, error) {
	if seed.ClusterID == "" {
		seed.ClusterID = seed.Name
	}

	annotations := map[string]any{}
	for key, value := range seed.Annotations {
		annotations[prefix+key] = value
	}

	object := map[string]any{
		"apiVersion": VitistackAPIVersion, "kind": VitistackKind,
		keyMetadata: map[string]any{"namespace": seed.Namespace, keyName: seed.Name, keyAnnotations: annotations},
		keySpec:     map[string]any{"data": map[string]any{"clusterId": seed.ClusterID}},
		partStatus: map[string]any{
			"phase": phaseReady, keyMessage: "Cluster is ready",
			"conditions": []any{condition(world.Clock().Now(), "Valid", "True", "Valid", "the specification is valid")},
		},
	}

	if err := objects.Create(ctx, object); err != nil {
		return cluster.Reference{}, err
	}

	spelled := ""
	if seed.WithV {
		spelled = "v"
	}

	first := world.Nodes()[0]
	data := map[string][]byte{
		"controlplane.yaml": []byte("# the operator's own copy\n"), "worker.yaml": []byte("# the operator's own copy\n"),
		"secrets.bundle": []byte("{}\n"), secretInstallImage: []byte(first.Image),
		secretTalos: []byte(spelled + lowestTalos(world).String()), secretKubernetes: []byte(spelled + lowestKubernetes(world).String()),
		secretBusy: []byte("false"),
	}

	for key, content := range map[string][]byte{"talosconfig": seed.Talosconfig, "kube.config": seed.Kubeconfig} {
		if content != nil {
			data[key] = content
		}
	}

	secret := cluster.Secret{Namespace: seed.Namespace, Name: seed.Prefix + seed.ClusterID, Data: data}

	return referenceOf(object), objects.CreateSecret(ctx, secret, map[string]string{clusterLabel: seed.ClusterID})
}

// SeedDeclarative creates the TalosControlPlane of the world, a TalosWorker named "<name>-workers" if there are
// workers, and a TalosMachine for each machine under the machine's name, all Ready.
func SeedDeclarative(ctx context.Context, objects Objects, world *model.World, seed Seed) (cluster.Reference, error) {
	versions := map[string]any{
		keyVersion: lowestTalos(world).Tag(), keyKubeVersion: lowestKubernetes(world).Tag(),
	}

	plane := seed.object(ControlPlaneKind, seed.Name, versions, map[string]any{observedKube: versions[keyKubeVersion]})
	if err := objects.Create(ctx, plane); err != nil {
		return cluster.Reference{}, err
	}

	workers := seed.Name + "-workers"
	owned := false

	for _, state := range world.Nodes() {
		owner, name := "controlPlaneRef", seed.Name

		if state.Role == model.Worker {
			owner, name = "workerRef", workers
		}

		if state.Role == model.Worker && !owned {
			owned = true

			worker := seed.object(WorkerKind, workers, with(versions, map[string]any{
				"controlPlaneRef": map[string]any{keyName: seed.Name},
			}), nil)
			if err := objects.Create(ctx, worker); err != nil {
				return cluster.Reference{}, err
			}
		}

		machine := seed.object(MachineKind, state.Name, map[string]any{
			keyVersion: "v" + state.Talos, "endpoint": state.Address, owner: map[string]any{keyName: name},
		}, map[string]any{observedTalos: "v" + state.Talos})
		if err := objects.Create(ctx, machine); err != nil {
			return cluster.Reference{}, err
		}
	}

	return referenceOf(plane), nil
}

// object returns an object of the declarative operator, Ready.
func (s Seed) object(kind, name string, spec, status map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": DeclarativeAPIVersion, "kind": kind,
		keyMetadata: map[string]any{"namespace": s.Namespace, keyName: name},
		keySpec:     spec,
		partStatus:  with(status, map[string]any{keyState: stateReady}),
	}
}

// condition returns a complete condition.
func condition(now time.Time, kind, status, reason, message string) map[string]any {
	return map[string]any{
		"type": kind, "status": status, "reason": reason, keyMessage: strings.TrimSpace(message),
		"lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
}
