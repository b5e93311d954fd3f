// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// configures tells a control plane about extra manifests.
func configures(t *testing.T, store state.State, extras ...k8s.ExtraManifest) state.State {
	t.Helper()

	config := k8s.NewExtraManifestsConfig()
	config.TypedSpec().ExtraManifests = extras

	if err := store.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}

	return store
}

// TestRender_IncompleteIsNotTakenForAll: a control plane that has just booted renders its own manifests at once, and
// those that it downloads later.
func TestRender_IncompleteIsNotTakenForAll(t *testing.T) {
	r := newRig(t)

	// Everything that the rig renders has a name of this form.
	first, second := k8s.ExtraManifest{Priority: "00", Name: "test"}, k8s.ExtraManifest{Priority: "01", Name: "test", InlineManifest: "password: hunter2"}
	download := k8s.ExtraManifest{Priority: "99", Name: "https://me:hunter2@example.org/cni.yaml?token=hunter2", ExtraHeaders: map[string]string{"Authorization": "hunter2"}}

	for name, test := range map[string]struct {
		extras []k8s.ExtraManifest
		says   string
	}{
		"none":            {nil, ""},
		"all are there":   {[]k8s.ExtraManifest{first, second}, ""},
		"one is missing":  {[]k8s.ExtraManifest{first, {Priority: "05", Name: "test"}}, "not rendered yet: test"},
		"two are missing": {[]k8s.ExtraManifest{{Priority: "05", Name: "storage"}, second, download}, "not rendered yet: https://example.org/cni.yaml, storage"},
	} {
		r.states.set(configures(t, r.rendering(settings, extra), test.extras...))

		pruning, incomplete := serverSide, serverSide
		pruning.Prune, incomplete.Incomplete = true, true

		_, diffErr := r.Diff(t.Context(), controlPlane, pruning)
		_, applyErr := r.Apply(t.Context(), controlPlane, serverSide)

		for call, err := range map[string]error{"diff with prune": diffErr, "apply": applyErr} {
			if test.says == "" {
				if err != nil {
					t.Errorf("%s, %s: %v", name, call, err)
				}

				continue
			}

			if !errors.Is(err, cluster.ErrIncomplete) || !cluster.Heals(err) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s, %s: %v, want %q", name, call, err, test.says)
			}
		}

		// A diff makes do with what there is, and so does a caller that says so.
		_, lookErr := r.Diff(t.Context(), controlPlane, serverSide)
		_, unreadyErr := r.Unready(t.Context(), controlPlane)
		_, madeDoErr := r.Apply(t.Context(), controlPlane, incomplete)

		if err := errors.Join(lookErr, unreadyErr, madeDoErr); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRender_ObjectsOfAnotherControlPlaneAreNotPruned(t *testing.T) {
	r := newRig(t)

	const second, third = "10.5.0.3", "10.5.0.4"

	old := strings.ReplaceAll(extra, "name: extra", "name: old")

	r.renders(settings, extra, old, role)

	if _, err := r.Apply(t.Context(), controlPlane, serverSide); err != nil {
		t.Fatal(err)
	}

	r.renders(settings)
	r.states.others = map[string]state.State{
		second: r.rendering(settings, extra), third: state.WrapCore(broken{err: cluster.ErrUnreachable}),
	}

	prune := cluster.ManifestOptions{ServerSide: true, Prune: true, Also: []string{second, third}}
	before := r.inventory()
	r.wire.taken()

	_, diffErr := r.Diff(t.Context(), controlPlane, prune)
	_, applyErr := r.Apply(t.Context(), controlPlane, prune)

	for call, err := range map[string]error{"diff": diffErr, "apply": applyErr} {
		if !errors.Is(err, cluster.ErrUnreachable) || !strings.Contains(err.Error(), third) || !strings.Contains(err.Error(), "nothing is pruned") {
			t.Errorf("%s with one that does not answer: %v", call, err)
		}
	}

	if writes := r.wire.taken(); len(writes) != 0 || !slices.Equal(before, r.inventory()) {
		t.Errorf("with one that does not answer: wrote %q", writes)
	}

	// The other control planes only matter to prune.
	changes, err := r.Diff(t.Context(), controlPlane, cluster.ManifestOptions{ServerSide: true, Also: prune.Also})
	r.expect("diff without prune", changes, err)

	// A manifest that names a namespace for a cluster-scoped object means the same.
	r.states.others[third] = r.rendering(settings, strings.ReplaceAll(role, `name: "test`, `namespace: x, name: "test`))

	changes, err = r.Diff(t.Context(), controlPlane, prune)
	r.expect("diff with prune", changes, err, "delete ConfigMap/NAMESPACE/old")

	changes, err = r.Apply(t.Context(), controlPlane, prune)
	r.expect("sync with prune", changes, err, "delete ConfigMap/NAMESPACE/old")
	r.configMap("extra")

	if _, err := r.other.RbacV1().ClusterRoles().Get(t.Context(), "test:"+r.namespace, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	want := []string{"_test__" + r.namespace + "_rbac.authorization.k8s.io_ClusterRole", r.namespace + "_extra__ConfigMap", r.namespace + "_settings__ConfigMap"}
	if keys := r.inventory(); !slices.Equal(keys, want) {
		t.Errorf("inventory %q, want %q", keys, want)
	}

	// Once no control plane renders it any more, it is pruned.
	prune.Also = []string{third}

	changes, err = r.Apply(t.Context(), controlPlane, prune)
	r.expect("sync with prune in the end", changes, err, "delete ConfigMap/NAMESPACE/extra")

	_, err = r.other.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "extra", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("extra: %v, want it gone", err)
	}
}
