// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// manifestsOfTalos is how many objects a control plane renders, kube-proxy
// included.
const manifestsOfTalos = 16

// born returns a rig on a cluster of its own, which has just been made on a version of
// Talos and renders what that does.
func born(t *testing.T, talos string) *rig {
	t.Helper()

	simulator, err := start(t.Context(), talos, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := simulator.Stop(); err != nil {
			t.Error(err)
		}
	})

	talosconfig, err := os.ReadFile(simulator.Talosconfig())
	if err != nil {
		t.Fatal(err)
	}

	config, err := talosapi.ParseConfig(talosconfig, "")
	if err != nil {
		t.Fatal(err)
	}

	client, err := talosapi.New(config, talosapi.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})

	r := connect(t, simulator)
	r.states.set(client.State(controlPlane))

	return r
}

func TestSync_ClusterBornOnTalos113HasNothingToSync(t *testing.T) {
	r := born(t, "1.13.4")

	keys := r.inventory()
	if len(keys) != manifestsOfTalos {
		t.Errorf("%d objects in the inventory, want %d: %q", len(keys), manifestsOfTalos, keys)
	}

	for name, options := range map[string]cluster.ManifestOptions{
		"server-side": serverSide, "with prune": {ServerSide: true, Prune: true}, "by force": {ServerSide: true, Force: true},
	} {
		changes, err := r.Diff(t.Context(), controlPlane, options)
		r.expect("diff "+name, changes, err)

		changes, err = r.Apply(t.Context(), controlPlane, options)
		r.expect("sync "+name, changes, err)

		for _, write := range r.wire.taken() {
			if !strings.HasSuffix(write, inventoryName) {
				t.Errorf("a sync %s with nothing to do: %s", name, write)
			}
		}
	}

	if after := r.inventory(); !slices.Equal(after, keys) {
		t.Errorf("inventory %q, was %q", after, keys)
	}
}

func TestSync_FirstServerSideOneAdoptsWhatTalos112Created(t *testing.T) {
	r := born(t, "1.12.6")

	if keys := r.inventory(); keys != nil {
		t.Errorf("the cluster was born with the inventory %q", keys)
	}

	planned, err := r.Diff(t.Context(), controlPlane, serverSide)
	if err != nil || len(planned) != manifestsOfTalos {
		t.Fatalf("%v, %d changes, want %d", err, len(planned), manifestsOfTalos)
	}

	// A new annotation increases the generation of a Deployment.
	onlyMarked := []string{"annotations:", ssa.InventoryAnnotationKey, "generation:"}

	for _, change := range planned {
		if change.Action != cluster.ManifestConfigured {
			t.Errorf("%s: %s, want it changed", change.Object, change.Action)
		}

		if !strings.Contains(change.Diff, ssa.InventoryAnnotationKey) {
			t.Errorf("%s: no mark in %q", change.Object, change.Diff)
		}

		for line := range strings.Lines(change.Diff) {
			changed := strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ")
			if changed && !slices.ContainsFunc(onlyMarked, func(part string) bool { return strings.Contains(line, part) }) {
				t.Errorf("%s: more than the mark changes: %q", change.Object, line)
			}
		}
	}

	changes, err := r.Apply(t.Context(), controlPlane, serverSide)
	r.expect("first sync", changes, err, r.summary(planned)...)

	if keys := r.inventory(); len(keys) != manifestsOfTalos {
		t.Errorf("%d objects in the inventory, want %d: %q", len(keys), manifestsOfTalos, keys)
	}

	changes, err = r.Diff(t.Context(), controlPlane, serverSide)
	r.expect("diff after a sync", changes, err)
}

const (
	settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NAMESPACE}, data: {mode: new}}`
	extra    = `{apiVersion: v1, kind: ConfigMap, metadata: {name: extra, namespace: NAMESPACE}, data: {a: b}}`
	fixed    = `{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed, namespace: NAMESPACE}, immutable: true, data: {a: %s}}`
	token    = `{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: NAMESPACE}, stringData: {value: %s}}`
	role     = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "test:NAMESPACE"},
		rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`
	proxy = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: proxy, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: proxy}}
  template:
    metadata: {labels: {app: proxy}}
    spec: {containers: [{name: c, image: "example.org/proxy:1"}]}
`
	resolver = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: resolver, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: resolver}}
  template:
    metadata: {labels: {app: resolver}}
    spec: {containers: [{name: c, image: "example.org/resolver:1"}], nodeSelector: {nobody: here}}
`
)

func TestSync_DiffTellsWhatItWouldDoAndWritesNothing(t *testing.T) {
	r := newRig(t)
	r.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"mode": "old"}})
	r.renders(settings, role, proxy)

	before := r.configMap("settings").ResourceVersion

	for name, options := range map[string]cluster.ManifestOptions{
		"server-side": serverSide, "with prune": {ServerSide: true, Prune: true}, "by force": {ServerSide: true, Force: true}, "legacy": {},
	} {
		changes, err := r.Diff(t.Context(), controlPlane, options)
		r.expect(name, changes, err,
			"create ClusterRole/test:NAMESPACE", "change ConfigMap/NAMESPACE/settings", "create DaemonSet/NAMESPACE/proxy")

		if diff := changes[1].Diff; !strings.Contains(diff, "-  mode: old") || !strings.Contains(diff, "+  mode: new") {
			t.Errorf("%s: the change of settings reads %q", name, diff)
		}

		if writes := r.wire.taken(); len(writes) != 0 {
			t.Errorf("%s: wrote %q", name, writes)
		}

		if keys := r.inventory(); keys != nil {
			t.Errorf("%s: left an inventory %q", name, keys)
		}
	}

	if after := r.configMap("settings").ResourceVersion; after != before {
		t.Errorf("resource version %s, was %s", after, before)
	}
}

func TestSync_TakesTurnsWithTalosctl(t *testing.T) {
	r := newRig(t)
	r.renders(settings, role, proxy)

	changes, err := r.Apply(t.Context(), controlPlane, serverSide)
	r.expect("first sync", changes, err,
		"create ClusterRole/test:NAMESPACE", "create ConfigMap/NAMESPACE/settings", "create DaemonSet/NAMESPACE/proxy")

	want := []string{"_test__" + r.namespace + "_rbac.authorization.k8s.io_ClusterRole", r.namespace + "_proxy_apps_DaemonSet", r.namespace + "_settings__ConfigMap"}
	if keys := r.inventory(); !slices.Equal(keys, want) {
		t.Errorf("inventory %q, want %q", keys, want)
	}

	stored := r.configMap("settings")
	if stored.Annotations[ssa.InventoryAnnotationKey] != inventoryName || stored.ManagedFields[0].Manager != "talos" {
		t.Errorf("stored as %+v", stored.ObjectMeta)
	}

	r.wire.taken()

	changes, err = r.Diff(t.Context(), controlPlane, serverSide)
	r.expect("diff after a sync", changes, err)

	changes, err = r.Apply(t.Context(), controlPlane, serverSide)
	r.expect("second sync", changes, err)

	for _, write := range r.wire.taken() {
		if !strings.HasSuffix(write, inventoryName) {
			t.Errorf("a sync with nothing to do: %s", write)
		}
	}

	// This is exactly what talosctl upgrade-k8s does.
	upstream, err := ssa.NewManager(t.Context(), r.kube.Config(), "talos", "kube-system", inventoryName)
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()

	rendered := func() []manifests.Manifest {
		objects, err := manifests.GetBootstrapManifests(t.Context(), r.states.State(controlPlane), nil)
		if err != nil {
			t.Fatal(err)
		}

		for i := range objects {
			objects[i] = objects[i].DeepCopy()
		}

		return objects
	}

	results, err := upstream.Diff(t.Context(), rendered(), ssa.DiffOptions{InventoryPolicy: ssa.InventoryPolicyAdoptIfNoInventory})
	if err != nil {
		t.Fatal(err)
	}

	for _, result := range results {
		if result.Action != ssa.DiffUnchangedAction {
			t.Errorf("talosctl would do %s to %s: %s", result.Action, result.Subject, result.Diff)
		}
	}

	r.renders(settings, role, proxy, extra)

	if _, err := upstream.Apply(t.Context(), rendered(), ssa.ApplyOptions{InventoryPolicy: ssa.InventoryPolicyAdoptIfNoInventory}); err != nil {
		t.Fatal(err)
	}

	changes, err = r.Diff(t.Context(), controlPlane, cluster.ManifestOptions{ServerSide: true, Prune: true})
	r.expect("diff after talosctl", changes, err)
}

func TestSync_PrunesOnlyOnRequest(t *testing.T) {
	r := newRig(t)
	r.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bystander"}})
	r.renders(settings, extra)

	if _, err := r.Apply(t.Context(), controlPlane, serverSide); err != nil {
		t.Fatal(err)
	}

	r.renders(settings)

	changes, err := r.Diff(t.Context(), controlPlane, serverSide)
	r.expect("diff without prune", changes, err)

	changes, err = r.Apply(t.Context(), controlPlane, serverSide)
	r.expect("sync without prune", changes, err)
	r.configMap("extra")

	prune := cluster.ManifestOptions{ServerSide: true, Prune: true}

	changes, err = r.Diff(t.Context(), controlPlane, prune)
	r.expect("diff with prune", changes, err, "delete ConfigMap/NAMESPACE/extra")
	r.configMap("extra")

	changes, err = r.Apply(t.Context(), controlPlane, prune)
	r.expect("sync with prune", changes, err, "delete ConfigMap/NAMESPACE/extra")

	_, err = r.other.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "extra", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("extra: %v, want it gone", err)
	}

	r.configMap("bystander")

	if keys := r.inventory(); len(keys) != 1 {
		t.Errorf("inventory %q, want settings alone", keys)
	}
}

func TestSync_DefinitionsComeBeforeWhatNeedsThem(t *testing.T) {
	r := newRig(t)
	r.renders(
		`{apiVersion: NAMESPACE.example.org/v1, kind: Widget, metadata: {name: one, namespace: NAMESPACE}, spec: {size: 3}}`,
		`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.NAMESPACE.example.org}
spec:
  group: NAMESPACE.example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)

	want := []string{"create CustomResourceDefinition/widgets.NAMESPACE.example.org", "create Widget/NAMESPACE/one"}

	changes, err := r.Diff(t.Context(), controlPlane, serverSide)
	r.expect("diff", changes, err, want...)

	changes, err = r.Apply(t.Context(), controlPlane, serverSide)
	r.expect("sync", changes, err, want...)

	changes, err = r.Diff(t.Context(), controlPlane, serverSide)
	r.expect("diff after a sync", changes, err)
}

func TestSync_InventoryOfAKindThatIsGoneDoesNotBlockPrune(t *testing.T) {
	r := newRig(t)
	r.renders(settings)

	_, err := r.other.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: inventoryName}, Data: map[string]string{"_psp_policy_PodSecurityPolicy": ""},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	changes, err := r.Apply(t.Context(), controlPlane, cluster.ManifestOptions{ServerSide: true, Prune: true})
	r.expect("sync", changes, err, "create ConfigMap/NAMESPACE/settings")

	if keys := r.inventory(); !slices.Equal(keys, []string{r.namespace + "_settings__ConfigMap"}) {
		t.Errorf("inventory %q", keys)
	}
}

func TestSync_OnlyForceRecreatesImmutableObjects(t *testing.T) {
	r := newRig(t)
	r.renders(fmt.Sprintf(fixed, "one"))

	if _, err := r.Apply(t.Context(), controlPlane, serverSide); err != nil {
		t.Fatal(err)
	}

	before := r.configMap("fixed").UID

	r.renders(settings, fmt.Sprintf(fixed, "two"))
	r.wire.taken()

	_, diffErr := r.Diff(t.Context(), controlPlane, serverSide)
	_, applyErr := r.Apply(t.Context(), controlPlane, serverSide)
	_, legacyErr := r.Diff(t.Context(), controlPlane, cluster.ManifestOptions{})

	for name, err := range map[string]error{"diff": diffErr, "sync": applyErr} {
		for _, says := range []string{"ConfigMap/" + r.namespace + "/fixed", "kubernetes.manifests.force recreates"} {
			if !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want a refusal that says %q", name, err, says)
			}
		}
	}

	if !errors.Is(legacyErr, cluster.ErrRefused) || !strings.Contains(legacyErr.Error(), "delete the object") {
		t.Errorf("legacy: %v, want a refusal that says what to do", legacyErr)
	}

	if writes := r.wire.taken(); len(writes) != 0 {
		t.Errorf("a refused sync wrote %q", writes)
	}

	force := cluster.ManifestOptions{ServerSide: true, Force: true}

	changes, err := r.Diff(t.Context(), controlPlane, force)
	r.expect("diff by force", changes, err, "change ConfigMap/NAMESPACE/fixed", "create ConfigMap/NAMESPACE/settings")

	changes, err = r.Apply(t.Context(), controlPlane, force)
	r.expect("sync by force", changes, err, "change ConfigMap/NAMESPACE/fixed", "create ConfigMap/NAMESPACE/settings")

	if after := r.configMap("fixed"); after.UID == before || !maps.Equal(after.Data, map[string]string{"a": "two"}) {
		t.Errorf("UID %s, was %s, with %v", after.UID, before, after.Data)
	}
}

// TestSync_ForceDeletesNothingThatCannotBeCreated: an object that is invalid in another way stays, and so does one beside
// it that would be recreated.
func TestSync_ForceDeletesNothingThatCannotBeCreated(t *testing.T) {
	r := newRig(t)
	r.renders(fmt.Sprintf(fixed, "one"), settings)

	if _, err := r.Apply(t.Context(), controlPlane, serverSide); err != nil {
		t.Fatal(err)
	}

	before := map[string]types.UID{"fixed": r.configMap("fixed").UID, "settings": r.configMap("settings").UID}

	r.renders(fmt.Sprintf(fixed, "two"), strings.Replace(settings, "mode: new", `"no key": x`, 1))

	force := cluster.ManifestOptions{ServerSide: true, Force: true}
	_, diffErr := r.Diff(t.Context(), controlPlane, force)
	_, applyErr := r.Apply(t.Context(), controlPlane, force)

	for name, err := range map[string]error{"diff": diffErr, "sync": applyErr} {
		if !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "/settings") || !strings.Contains(err.Error(), "It is not recreated") {
			t.Errorf("%s: %v, want a refusal of settings", name, err)
		}
	}

	for name, was := range before {
		if is := r.configMap(name).UID; is != was {
			t.Errorf("%s was recreated", name)
		}
	}
}

// TestSync_ExcludedObjectIsNotPrunedOnceItIsNoLongerRendered: somebody else manages it by now.
func TestSync_ExcludedObjectIsNotPrunedOnceItIsNoLongerRendered(t *testing.T) {
	r := newRig(t)
	r.renders(settings, extra)

	if _, err := r.Apply(t.Context(), controlPlane, serverSide); err != nil {
		t.Fatal(err)
	}

	r.renders(settings)

	options := cluster.ManifestOptions{ServerSide: true, Prune: true, Exclude: []cluster.ManifestObject{{Kind: "ConfigMap", Namespace: r.namespace, Name: "extra"}}}

	changes, err := r.Diff(t.Context(), controlPlane, options)
	r.expect("diff", changes, err)

	changes, err = r.Apply(t.Context(), controlPlane, options)
	r.expect("sync", changes, err)
	r.configMap("extra")

	if keys := r.inventory(); len(keys) != 2 {
		t.Errorf("inventory %q, want both", keys)
	}
}

// TestSync_ExcludedObjectsStayAsTheyAre: if one of them cannot be changed, the others still are, and none is pruned.
func TestSync_ExcludedObjectsStayAsTheyAre(t *testing.T) {
	r := newRig(t)
	r.renders(fmt.Sprintf(fixed, "one"))

	if _, err := r.Apply(t.Context(), controlPlane, serverSide); err != nil {
		t.Fatal(err)
	}

	before := r.configMap("fixed").UID

	r.renders(settings, fmt.Sprintf(fixed, "two"))

	for name, options := range map[string]cluster.ManifestOptions{
		"server-side": {ServerSide: true, Prune: true}, "legacy": {},
	} {
		options.Exclude = []cluster.ManifestObject{{Kind: "ConfigMap", Namespace: r.namespace, Name: "fixed"}}

		changes, err := r.Diff(t.Context(), controlPlane, options)
		r.expect(name+" diff", changes, err, "create ConfigMap/NAMESPACE/settings")
	}

	options := cluster.ManifestOptions{ServerSide: true, Prune: true, Exclude: []cluster.ManifestObject{{Kind: "ConfigMap", Name: "fixed"}}}

	changes, err := r.Apply(t.Context(), controlPlane, options)
	r.expect("sync", changes, err, "create ConfigMap/NAMESPACE/settings")

	if after := r.configMap("fixed"); after.UID != before || !maps.Equal(after.Data, map[string]string{"a": "one"}) {
		t.Errorf("UID %s, was %s, with %v", after.UID, before, after.Data)
	}

	if keys := r.inventory(); len(keys) != 2 {
		t.Errorf("inventory %q, want both", keys)
	}

	// If everything is excluded, nothing is left to do, and nothing is pruned.
	r.renders(fmt.Sprintf(fixed, "two"))

	changes, err = r.Apply(t.Context(), controlPlane, options)
	r.expect("sync of nothing", changes, err)
	r.configMap("settings")
}
