// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	inventoryOfTalos = "talos-bootstrap-manifests-inventory"
	// nameSpare is an object of the manifests that nothing in the cluster needs, keySpare its key in the inventory.
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

// listed returns the objects that the inventory names; nil if there is no inventory.
func listed(t *testing.T, client kubernetes.Interface) []string {
	t.Helper()

	inventory := getConfigMap(t, client, inventoryOfTalos)
	if inventory == nil {
		return nil
	}

	return slices.Sorted(maps.Keys(inventory.Data))
}

// renderOn makes a control plane with a version of Talos sync its manifests.
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

func TestManifest_Talos113ListsWhatExistsInAnInventory(t *testing.T) {
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

	if annotations := getProxies(t, client).Annotations; annotations[bootstrap.AnnotationInventory] != "" {
		t.Errorf("an object that existed was marked: %v", annotations)
	}

	before := getConfigMap(t, client, inventoryOfTalos).ResourceVersion

	s.renderOn(t, "cp-0", "1.13.4")
	s.renderOn(t, "cp-1", "1.13.4")

	if after := getConfigMap(t, client, inventoryOfTalos).ResourceVersion; after != before {
		t.Errorf("an inventory that is complete was written: resource version %s, was %s", after, before)
	}
}

func TestManifest_Talos113CreatesWhatIsNotInTheInventory(t *testing.T) {
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

	// This is what a sync leaves that pruned one object and added another.
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

	if id := created.Annotations[bootstrap.AnnotationInventory]; id != inventoryOfTalos {
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

// bornWithInventory checks that a cluster that has just started has all of its manifests in the inventory.
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

		if id := created.GetAnnotations()[bootstrap.AnnotationInventory]; id != inventoryOfTalos {
			t.Errorf("%s %s belongs to the inventory %q", object.GetKind(), object.GetName(), id)
		}
	}
}

func getDNS(t *testing.T, client kubernetes.Interface) *appsv1.Deployment {
	t.Helper()

	deployment, err := client.AppsV1().Deployments(namespaceSystem).Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return deployment
}

// available reports whether the status of a Deployment of two replicas says that it is up to date and available.
func available(deployment *appsv1.Deployment) bool {
	status := deployment.Status

	return status.ObservedGeneration == deployment.Generation && status.Replicas == 2 && status.UpdatedReplicas == 2 &&
		status.ReadyReplicas == 2 && status.AvailableReplicas == 2 && status.UnavailableReplicas == 0 &&
		slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Reason == "NewReplicaSetAvailable"
		}) &&
		slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
		})
}

func dnsPods(t *testing.T, client kubernetes.Interface) []corev1.Pod {
	t.Helper()

	list, err := client.CoreV1().Pods(namespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		t.Fatal(err)
	}

	return list.Items
}

// nodesOf returns the nodes that pods run on, sorted.
func nodesOf(pods []corev1.Pod) []string {
	var nodes []string

	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && podReady(&pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}

	slices.Sort(nodes)

	return nodes
}

func TestCoreDNS_RunsOnTwoControlPlanes(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	until(t, "CoreDNS to be available", func() bool { return available(getDNS(t, client)) })

	nodes := nodesOf(dnsPods(t, client))
	if len(nodes) != 2 || nodes[0] == nodes[1] || nodes[0][:2] != "cp" || nodes[1][:2] != "cp" {
		t.Errorf("CoreDNS runs on %v, want two control planes", nodes)
	}

	// Evicted pods start on other nodes, and none is left on this one.
	node := nodes[1]
	patchNode(t, client, node, cordonPatch, metav1.PatchOptions{})

	for _, pod := range dnsPods(t, client) {
		if pod.Spec.NodeName == node {
			if err := evict(t, client, pod); err != nil {
				t.Fatal(err)
			}
		}
	}

	until(t, "CoreDNS to be available elsewhere", func() bool {
		return available(getDNS(t, client)) && !slices.Contains(nodesOf(dnsPods(t, client)), node) && len(dnsPods(t, client)) == 2
	})
	patchNode(t, client, node, uncordonPatch, metav1.PatchOptions{})
}

// TestProxy_ClusterWithoutKubeProxy has a server of its own.
func TestProxy_ClusterWithoutKubeProxy(t *testing.T) {
	toolchain.NeedKubernetes(t)

	s, err := newShared(t.TempDir(), 1, 1, 0, func(w *fakeWorld) {
		w.rendered.ProxyImage = ""

		for i := range w.machines {
			w.machines[i].Proxy, w.machines[i].Talos = "", "1.13.2"
		}
	})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := s.server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()

	client := s.as(t, "test")

	if _, err := client.AppsV1().DaemonSets(namespaceSystem).Get(t.Context(), nameProxy, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the DaemonSet of kube-proxy: %v, want none", err)
	}

	if pods := proxyPods(t, client); len(pods) != 0 {
		t.Errorf("%d pods of kube-proxy", len(pods))
	}

	if deployment := getDNS(t, client); !available(deployment) {
		t.Errorf("CoreDNS is not available when the cluster has started: %+v", deployment.Status)
	}

	if nodes := nodesOf(dnsPods(t, client)); !slices.Equal(nodes, []string{"cp-0", "cp-0"}) {
		t.Errorf("CoreDNS runs on %v, want the only control plane", nodes)
	}

	service, err := client.CoreV1().Services(namespaceSystem).Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "10.96.0.10" {
		t.Errorf("the service of CoreDNS: %v, address %s", err, service.Spec.ClusterIP)
	}

	s.bornWithInventory(t, client, slices.DeleteFunc(inventoryKeys(), func(key string) bool {
		return strings.Contains(key, nameProxy)
	}))
	replaceDNS(t, client)
}

// replaceDNS deletes CoreDNS, waits for its dependents to be deleted, and creates it again.
func replaceDNS(t *testing.T, client kubernetes.Interface) {
	t.Helper()

	before := getDNS(t, client)
	foreground := metav1.DeletePropagationForeground

	err := client.AppsV1().Deployments(namespaceSystem).Delete(t.Context(), "coredns", metav1.DeleteOptions{PropagationPolicy: &foreground})
	if err != nil {
		t.Fatal(err)
	}

	until(t, "CoreDNS to be gone", func() bool {
		_, err := client.AppsV1().Deployments(namespaceSystem).Get(t.Context(), "coredns", metav1.GetOptions{})

		return apierrors.IsNotFound(err) && len(dnsPods(t, client)) == 0
	})

	again := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceSystem, Name: before.Name, Labels: before.Labels}, Spec: before.Spec,
	}

	if _, err := client.AppsV1().Deployments(namespaceSystem).Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	until(t, "CoreDNS to be back", func() bool { return available(getDNS(t, client)) })
}

func proxyPods(t *testing.T, client kubernetes.Interface) []corev1.Pod {
	t.Helper()

	list, err := client.CoreV1().Pods(namespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
	if err != nil {
		t.Fatal(err)
	}

	return list.Items
}

func getProxies(t *testing.T, client kubernetes.Interface) *appsv1.DaemonSet {
	t.Helper()

	set, err := client.AppsV1().DaemonSets(namespaceSystem).Get(t.Context(), nameProxy, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return set
}

// rolled reports whether the status of a DaemonSet says that it is up to date and available.
func rolled(set *appsv1.DaemonSet, nodes int32) bool {
	status := set.Status

	return status.ObservedGeneration == set.Generation && status.DesiredNumberScheduled == nodes &&
		status.CurrentNumberScheduled == nodes && status.UpdatedNumberScheduled == nodes &&
		status.NumberReady == nodes && status.NumberAvailable == nodes && status.NumberUnavailable == 0
}

func setProxyImage(t *testing.T, client kubernetes.Interface, image string) {
	t.Helper()

	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"kube-proxy","image":"` + image + `"}]}}}}`

	_, err := client.AppsV1().DaemonSets(namespaceSystem).
		Patch(t.Context(), nameProxy, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// proxyVersions returns the versions that the world was told, each once.
func (w *fakeWorld) proxyVersions() []string {
	var versions []string
	for _, machine := range w.Machines() {
		versions = append(versions, machine.Proxy)
	}

	slices.Sort(versions)

	return slices.Compact(versions)
}

func TestProxy_TheWorldIsToldOfEachImage(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	until(t, "kube-proxy to be there", func() bool { return rolled(getProxies(t, client), 5) })

	for image, version := range map[string]string{
		"mirror.example:5000/kube-proxy:v1.35.0@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef": "1.35.0",
		"registry.k8s.io/kube-proxy:v1.34.2": "1.34.2",
	} {
		setProxyImage(t, client, image)
		until(t, image+" to be everywhere", func() bool {
			return rolled(getProxies(t, client), 5) && slices.Equal(s.world.proxyVersions(), []string{version})
		})
	}

	setProxyImage(t, client, "registry.k8s.io/kube-proxy:v1.34.2")
	until(t, "the old image to be everywhere", func() bool {
		return rolled(getProxies(t, client), 5) && slices.Equal(s.world.proxyVersions(), []string{"1.34.2"})
	})
}

func TestManifest_MachinesCreateWhatIsMissingAndLeaveTheRest(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent)

	// render makes a control plane sync its manifests again.
	render := func(node, image string) {
		s.world.change(node, func(w *fakeWorld, m *Machine) {
			w.rendered.ProxyImage = image
			m.ConfigVersion++
		})
		until(t, node+" to look after its manifests", func() bool {
			machine, _ := s.world.Machine(node)

			return !s.server.play.manifestsDue(machine)
		})
	}

	events := told(t, s, func() { render("cp-1", "registry.k8s.io/kube-proxy:v1.35.0") })
	expect(t, events)

	if image := getProxies(t, client).Spec.Template.Spec.Containers[0].Image; image != "registry.k8s.io/kube-proxy:v1.34.2" {
		t.Errorf("a machine changed the image of a DaemonSet that exists to %s", image)
	}

	foreground := metav1.DeletePropagationForeground

	events = told(t, s, func() {
		err := client.AppsV1().DaemonSets(namespaceSystem).Delete(t.Context(), nameProxy, metav1.DeleteOptions{PropagationPolicy: &foreground})
		if err != nil {
			t.Fatal(err)
		}

		until(t, "the DaemonSet and its pods to be gone", func() bool {
			_, err := client.AppsV1().DaemonSets(namespaceSystem).Get(t.Context(), nameProxy, metav1.GetOptions{})

			return apierrors.IsNotFound(err) && len(proxyPods(t, client)) == 0
		})
	})

	if len(events) != 1 || events[0].Detail["verb"] != "delete" || events[0].Detail["by"] != byClient {
		t.Errorf("the history tells %+v, want the client's deletion alone", events)
	}

	until(t, "the world to know", func() bool { return slices.Equal(s.world.proxyVersions(), []string{""}) })

	render("cp-2", "registry.k8s.io/kube-proxy:v1.34.2")
	until(t, "the DaemonSet to be back", func() bool {
		set, err := client.AppsV1().DaemonSets(namespaceSystem).Get(t.Context(), nameProxy, metav1.GetOptions{})

		return err == nil && rolled(set, 5) && slices.Equal(s.world.proxyVersions(), []string{"1.34.2"})
	})

	if managers := getProxies(t, client).ManagedFields; !slices.ContainsFunc(managers, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "talos" && m.Subresource == ""
	}) {
		t.Errorf("the fields belong to %+v, want talos", managers)
	}
}

func TestManifest_VersionOfAnImage(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kube-proxy:v1.35.2":                 "1.35.2",
		"mirror.example:5000/kube-proxy:v1.35.2@sha256:0123": "1.35.2",
		"mirror.example:5000/kube-proxy":                     "",
		"mirror.example:5000/kube-proxy@sha256:0123":         "",
		"kube-proxy:1.35.2":                                  "1.35.2",
	} {
		if version := imageVersion(image); version != want {
			t.Errorf("%s: version %q, want %q", image, version, want)
		}
	}
}
