// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

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

// rolled tells whether a DaemonSet says of itself that all is as it should be.
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

// proxyVersions are the versions that the world was told of, each once.
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

func TestMachinesCreateWhatIsMissingAndLeaveTheRest(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent)

	// render lets a control plane look after its manifests again.
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

func TestVersionOfAnImage(t *testing.T) {
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
