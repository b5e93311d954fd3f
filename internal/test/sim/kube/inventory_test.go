// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

const (
	inventoryOfTalos = "talos-bootstrap-manifests-inventory"
	// nameSpare is an object of the manifests that nothing in the cluster needs,
	// keySpare how the inventory names it.
	nameSpare, keySpare = "kubeconfig-in-cluster", "kube-system_kubeconfig-in-cluster__ConfigMap"
)

// inventoryKeys names the manifests with kube-proxy as Talos does.
func inventoryKeys() []string {
	const binding = "_rbac.authorization.k8s.io_ClusterRoleBinding"

	return []string{
		"_kube-proxy" + binding,
		"_system-bootstrap-approve-node-client-csr" + binding,
		"_system-bootstrap-node-bootstrapper" + binding,
		"_system-bootstrap-node-renewal" + binding,
		"_system__coredns_rbac.authorization.k8s.io_ClusterRole",
		"_system__coredns" + binding,
		"_system__talos-nodes_rbac.authorization.k8s.io_ClusterRole",
		"_system__talos-nodes" + binding,
		"kube-system_bootstrap-token-abcdef__Secret",
		"kube-system_coredns__ConfigMap",
		"kube-system_coredns__ServiceAccount",
		"kube-system_coredns_apps_Deployment",
		"kube-system_kube-dns__Service",
		"kube-system_kube-proxy__ServiceAccount",
		"kube-system_kube-proxy_apps_DaemonSet",
		keySpare,
	}
}

func getConfigMap(t *testing.T, client kubernetes.Interface, name string) *corev1.ConfigMap {
	t.Helper()

	found, err := client.CoreV1().ConfigMaps(namespaceSystem).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		t.Fatal(err)
	}

	return found
}

func deleteConfigMap(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()

	err := client.CoreV1().ConfigMaps(namespaceSystem).Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// listed are the objects that the inventory names; nil where there is none.
func listed(t *testing.T, client kubernetes.Interface) []string {
	t.Helper()

	inventory := getConfigMap(t, client, inventoryOfTalos)
	if inventory == nil {
		return nil
	}

	return slices.Sorted(maps.Keys(inventory.Data))
}

// renderOn has a control plane of a version of Talos look after its manifests.
func (s shared) renderOn(t *testing.T, node, talos string) {
	t.Helper()

	s.world.change(node, func(_ *fakeWorld, m *Machine) {
		m.Talos = talos
		m.ConfigVersion++
	})
	until(t, node+" to look after its manifests", func() bool {
		machine, _ := s.world.Machine(node)

		return !s.server.play.manifestsDue(machine)
	})
}

func TestTalos113ListsWhatExistsInAnInventory(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent)

	defer func() {
		for _, node := range []string{"cp-0", "cp-1"} {
			s.renderOn(t, node, "1.12.6")
		}

		deleteConfigMap(t, client, inventoryOfTalos)
	}()

	s.renderOn(t, "cp-0", "1.12.6")

	if keys := listed(t, client); keys != nil {
		t.Errorf("Talos 1.12 keeps the inventory %q", keys)
	}

	expect(t, told(t, s, func() { s.renderOn(t, "cp-0", "1.13.4") }))

	if keys := listed(t, client); !slices.Equal(keys, inventoryKeys()) {
		t.Errorf("inventory %q, want %q", keys, inventoryKeys())
	}

	if annotations := getProxies(t, client).Annotations; annotations[annotationInventory] != "" {
		t.Errorf("an object that existed was marked: %v", annotations)
	}

	before := getConfigMap(t, client, inventoryOfTalos).ResourceVersion

	s.renderOn(t, "cp-0", "1.13.4")
	s.renderOn(t, "cp-1", "1.13.4")

	if after := getConfigMap(t, client, inventoryOfTalos).ResourceVersion; after != before {
		t.Errorf("an inventory that is complete was written: resource version %s, was %s", after, before)
	}
}

func TestTalos113CreatesWhatIsNotInTheInventory(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent)

	defer func() {
		s.renderOn(t, "cp-0", "1.12.6")
		deleteConfigMap(t, client, inventoryOfTalos)
	}()

	s.renderOn(t, "cp-0", "1.13.4")
	deleteConfigMap(t, client, nameSpare)
	s.renderOn(t, "cp-0", "1.13.4")

	if getConfigMap(t, client, nameSpare) != nil {
		t.Error("a machine created what the inventory says was created before")
	}

	// As a sync does that pruned the one and added another.
	inventory := getConfigMap(t, client, inventoryOfTalos)
	delete(inventory.Data, keySpare)
	inventory.Data["kube-system_theirs__ConfigMap"] = ""

	if _, err := client.CoreV1().ConfigMaps(namespaceSystem).Update(t.Context(), inventory, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	s.renderOn(t, "cp-0", "1.13.4")

	created := getConfigMap(t, client, nameSpare)
	if created == nil {
		t.Fatal("a machine left out what the inventory does not name")
	}

	if id := created.Annotations[annotationInventory]; id != inventoryOfTalos {
		t.Errorf("it belongs to the inventory %q, want %q", id, inventoryOfTalos)
	}

	if manager := created.ManagedFields[0]; manager.Manager != "talos" || manager.Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("the fields belong to %+v, want what talos applied", manager)
	}

	want := append(inventoryKeys(), "kube-system_theirs__ConfigMap")
	if keys := listed(t, client); !slices.Equal(keys, want) {
		t.Errorf("inventory %q, want %q", keys, want)
	}
}

// bornWithInventory wants a cluster that has just started to know all of its
// manifests.
func (s shared) bornWithInventory(t *testing.T, client kubernetes.Interface, keys []string) {
	t.Helper()

	if found := listed(t, client); !slices.Equal(found, keys) {
		t.Errorf("inventory %q, want %q", found, keys)
	}

	for _, rendered := range s.world.Manifests("cp-0") {
		object := &unstructured.Unstructured{Object: rendered}
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())

		created, err := s.server.play.client.objects.Resource(resource).Namespace(object.GetNamespace()).
			Get(t.Context(), object.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		if id := created.GetAnnotations()[annotationInventory]; id != inventoryOfTalos {
			t.Errorf("%s %s belongs to the inventory %q", object.GetKind(), object.GetName(), id)
		}
	}
}
