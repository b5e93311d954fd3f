// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

func annotations(values map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": values}}
}

// revision returns the resource version of the object.
func (r *rig) revision() string {
	r.t.Helper()

	object, err := r.Object(r.t.Context(), r.of)
	if err != nil {
		r.t.Fatal(err)
	}

	metadata, _ := object["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)

	return version
}

// TestMemory_MergePatchesLikeTheAPIServer: a merge patch has the same effect as on the API server.
func TestMemory_MergePatchesLikeTheAPIServer(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		ctx := r.t.Context()
		before := r.revision()

		if _, err := r.PatchObject(ctx, r.of, "", annotations(map[string]any{prefix + "talos-status": "idle", "other": "kept"})); err != nil {
			t.Fatal(err)
		}

		after := r.revision()
		if after == before {
			t.Error("a write leaves the resource version")
		}

		// A patch that changes nothing is no write, and neither is a status outside its subresource.
		patch := annotations(map[string]any{prefix + "talos-status": "idle"})
		patch["status"] = map[string]any{"phase": "Elsewhere"}

		if _, err := r.PatchObject(ctx, r.of, "", patch); err != nil || r.revision() != after {
			t.Errorf("what changes nothing made %s of %s: %v", r.revision(), after, err)
		}

		stale := map[string]any{"metadata": map[string]any{"resourceVersion": before, "annotations": map[string]any{"other": "changed"}}}
		if _, err := r.PatchObject(ctx, r.of, "", stale); !errors.Is(err, cluster.ErrConflict) {
			t.Errorf("with a resource version of the past: %v", err)
		}

		if _, err := r.PatchObject(ctx, r.of, "", annotations(map[string]any{prefix + "talos-status": nil})); err != nil {
			t.Fatal(err)
		}

		// Annotations in a patch of the status are ignored, too.
		beside := annotations(map[string]any{"other": "changed"})
		beside["status"] = map[string]any{"phase": "UpgradingTalos"}

		if _, err := r.PatchObject(ctx, r.of, "status", beside); err != nil {
			t.Fatal(err)
		}

		if got := r.Annotations(r.of); !maps.Equal(got, map[string]string{"other": "kept"}) || r.status(r.of, "phase") != "UpgradingTalos" {
			t.Errorf("it ends with %v and phase %s", got, r.status(r.of, "phase"))
		}

		var told []string

		for _, event := range r.happened(history.KindAnnotation) {
			told = append(told, event.Detail["object"]+" "+event.Detail["key"]+"="+event.Detail["value"]+" by "+event.Detail["by"])
		}

		const name = "KubernetesCluster/tenant-a/prod talos-status"
		if len(told) != 2 || told[0] != name+"=idle by client" || told[1] != name+"= by client" {
			t.Errorf("the history says %q", told)
		}
	})
}

// TestMemory_ErrorsMeanWhatThoseOfTheAdapterMean: errors mean what those of the real adapter mean.
func TestMemory_ErrorsMeanWhatThoseOfTheAdapterMean(t *testing.T) {
	plane := named(operator.ControlPlaneKind, "plane")
	configMap := cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "tenant-a", Name: "plain"}

	for name, test := range map[string]struct {
		do   func(context.Context, *rig) error
		want error
	}{
		"no such object": {func(ctx context.Context, r *rig) error {
			_, err := r.Object(ctx, named(operator.ControlPlaneKind, "another"))

			return err
		}, cluster.ErrNotFound},
		"no such kind": {func(ctx context.Context, r *rig) error {
			r.Unserve(operator.VitistackAPIVersion, operator.VitistackKind)

			_, err := r.PatchObject(ctx, r.of, "", annotations(map[string]any{"a": "b"}))

			return err
		}, cluster.ErrNotFound},
		"a field that the status does not have": {func(ctx context.Context, r *rig) error {
			_, err := r.PatchObject(ctx, r.of, "status", map[string]any{"status": map[string]any{"mood": "fine"}})

			return err
		}, cluster.ErrRefused},
		"half a condition": {func(ctx context.Context, r *rig) error {
			_, err := r.PatchObject(ctx, r.of, "status", map[string]any{"status": map[string]any{
				"conditions": []any{map[string]any{"type": "TalosUpgrade", "status": "True"}},
			}})

			return err
		}, cluster.ErrRefused},
		"a status of what has none": {func(ctx context.Context, r *rig) error {
			if err := r.Create(ctx, map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "tenant-a", "name": "plain"},
			}); err != nil {
				return err
			}

			if has, err := r.HasPart(ctx, configMap, "status"); has || err != nil {
				return errors.New("a ConfigMap has a status")
			}

			_, err := r.PatchObject(ctx, configMap, "status", map[string]any{"status": map[string]any{"phase": "Ready"}})

			return err
		}, cluster.ErrNotFound},
		"a version without v": {func(ctx context.Context, r *rig) error {
			_, err := r.PatchObject(ctx, plane, "", map[string]any{"spec": map[string]any{"version": toTalos}})

			return err
		}, cluster.ErrRefused},
		"an older kubeVersion": {func(ctx context.Context, r *rig) error {
			_, err := r.PatchObject(ctx, plane, "", map[string]any{"spec": map[string]any{"kubeVersion": "v1.34.1"}})

			return err
		}, cluster.ErrRefused},
		"a Secret of the past": {func(ctx context.Context, r *rig) error {
			read, err := r.Secret(ctx, "tenant-a", "talos-c-1")
			if err != nil {
				return err
			}

			if err := r.PatchSecret(ctx, read, map[string][]byte{"talos_version": []byte(toTalos)}); err != nil {
				return err
			}

			return r.PatchSecret(ctx, read, map[string][]byte{"talos_version": []byte(fromTalos)})
		}, cluster.ErrConflict},
		"no such Secret": {func(ctx context.Context, r *rig) error {
			_, err := r.Secret(ctx, "tenant-a", "c-1")

			return err
		}, cluster.ErrNotFound},
		"a context that has ended": {func(ctx context.Context, r *rig) error {
			ended, end := context.WithCancel(ctx)
			end()

			_, err := r.Object(ended, r.of)

			return err
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			besideVitistack(t, func(r *rig) {
				if _, err := operator.SeedDeclarative(r.t.Context(), r.Memory, r.cluster.World(), operator.Seed{Namespace: "tenant-a", Name: "plane"}); err != nil {
					t.Fatal(err)
				}

				if err := test.do(r.t.Context(), r); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		})
	}
}

// TestMemory_FindsSecretsByLabel, as a client does.
func TestMemory_FindsSecretsByLabel(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		ctx := r.t.Context()

		found, err := r.Secrets(ctx, "tenant-a", "cluster.vitistack.io/cluster-id=c-1")
		if err != nil || len(found) != 1 || string(found[0].Data["kubernetes_version"]) != fromKubernetes {
			t.Fatalf("found %v, %v", found, err)
		}

		for namespace, selector := range map[string]string{"tenant-a": "cluster.vitistack.io/cluster-id=c-2", "tenant-b": ""} {
			if none, err := r.Secrets(ctx, namespace, selector); err != nil || len(none) != 0 {
				t.Errorf("in %s with %s: %v, %v", namespace, selector, none, err)
			}
		}

		// What was read is a copy.
		found[0].Data["talos_version"][0] = 'x'

		if got := r.secret("talos_version"); got != fromTalos {
			t.Errorf("a reader changed the Secret to %s", got)
		}
	})
}

// TestMemory_ObjectWithAFinalizerStays, and its operator ignores it.
func TestMemory_ObjectWithAFinalizerStays(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		if err := r.Delete(r.of, "vitistack.io/keep"); err != nil {
			t.Fatal(err)
		}

		defer r.play(operator.Habits{})()

		r.annotate(map[string]string{"talos-target": toTalos})
		time.Sleep(time.Hour)
		r.want(map[string]string{"talos-status": ""})
		r.wantTalos(fromTalos)

		if err := r.Delete(r.of); err != nil {
			t.Fatal(err)
		}

		if _, err := r.Object(r.t.Context(), r.of); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("it is still there: %v", err)
		}
	})
}

// TestMemory_InsideAnswersOnlyWhileAnAPIServerServes: an API inside of the upgraded cluster answers while a
// kube-apiserver serves; one elsewhere always does.
func TestMemory_InsideAnswersOnlyWhileAnAPIServerServes(t *testing.T) {
	options := model.Options{ControlPlanes: 1, Workers: 1, Talos: fromTalos, Kubernetes: fromKubernetes}

	beside(t, options, operator.SeedVitistack, operator.Seed{}, func(r *rig) {
		inside, err := operator.NewMemoryIn(r.cluster.Server)
		if err != nil {
			t.Fatal(err)
		}

		of, err := operator.SeedVitistack(r.t.Context(), inside, r.cluster.World(), operator.Seed{Namespace: "a", Name: "b"})
		if err != nil {
			t.Fatal(err)
		}

		if err := r.cluster.World().RebootByHand("cp-0", model.RebootDefault); err != nil {
			t.Fatal(err)
		}

		r.until("down", time.Minute, func() bool { return !r.cluster.World().Serving() })

		if _, err := inside.Object(r.t.Context(), of); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("without an API server: %v", err)
		}

		if _, err := r.Object(r.t.Context(), r.of); err != nil {
			t.Errorf("elsewhere: %v", err)
		}

		r.until("up", 10*time.Minute, r.cluster.World().Serving)

		if _, err := inside.Object(r.t.Context(), of); err != nil {
			t.Errorf("up again: %v", err)
		}
	})
}
