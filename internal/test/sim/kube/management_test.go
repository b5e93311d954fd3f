// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// managed is a management cluster and its history.
type managed struct {
	*testing.T

	server *Management
	notes  *notebook
}

func newManaged(t *testing.T) managed {
	t.Helper()

	toolchain.NeedKubernetes(t)

	binaries, err := toolchain.Kubernetes(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	m := managed{T: t, notes: &notebook{}}

	m.server, err = NewManagement(ManagementOptions{
		Recorder: m.notes, Dir: t.TempDir(), Binaries: Binaries{APIServer: binaries.APIServer, Etcd: binaries.Etcd},
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := m.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := m.server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})

	return m
}

// as returns a client through the kubeconfig, with a user agent.
func (m managed) as(agent string) *client {
	m.Helper()

	kubeconfig, err := m.server.Kubeconfig()
	if err != nil {
		m.Fatal(err)
	}

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		m.Fatal(err)
	}

	config.UserAgent = agent

	return m.over(config)
}

func (m managed) over(config *rest.Config) *client {
	m.Helper()

	made, err := newClient(config)
	if err != nil {
		m.Fatal(err)
	}

	m.Cleanup(made.close)

	return made
}

func (m managed) sync() {
	m.Helper()

	if err := m.server.Sync(m.Context()); err != nil {
		m.Fatal(err)
	}
}

// told returns the events of the requests that act makes.
func (m managed) told(act func()) []history.Event {
	m.Helper()

	m.sync()

	before := m.notes.count()

	act()
	m.sync()

	return m.notes.since(before)
}

func clusters(by *client) dynamic.ResourceInterface {
	return by.objects.Resource(schema.GroupVersionResource{
		Group: "vitistack.io", Version: "v1alpha1", Resource: "kubernetesclusters",
	}).Namespace("default")
}

func controlPlanes(by *client) dynamic.ResourceInterface {
	return by.objects.Resource(schema.GroupVersionResource{
		Group: "talos.alperen.cloud", Version: "v1alpha1", Resource: "taloscontrolplanes",
	}).Namespace("default")
}

func (m managed) create(at dynamic.ResourceInterface, object map[string]any) {
	m.Helper()

	if _, err := at.Create(m.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
}

func (m managed) patch(at dynamic.ResourceInterface, patch string, parts ...string) {
	m.Helper()

	if _, err := at.Patch(m.Context(), "prod", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, parts...); err != nil {
		m.Fatal(err)
	}
}

// refuses checks that the API server rejects a patch, and says why.
func (m managed) refuses(at dynamic.ResourceInterface, patch, why string, parts ...string) {
	m.Helper()

	_, err := at.Patch(m.Context(), "prod", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, parts...)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), why) {
		m.Errorf("%s: got %v, want a refusal with %q", patch, err, why)
	}
}

// TestManagement_ClusterShowsEverythingOfOneStart checks everything that one start of it can show.
func TestManagement_ClusterShowsEverythingOfOneStart(t *testing.T) {
	m := newManaged(t)

	m.tellsWhoWrote()
	m.tellsOfStatus()
	m.keepsSecrets()
	m.refusesWhatTheOperatorsDo()
	m.goesAndComesBack()
}

func (m managed) tellsWhoWrote() {
	provider, operator := clusters(m.as(providerAgent)), clusters(m.over(m.server.Config()))

	m.create(operator, map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster", "metadata": map[string]any{"name": "prod"},
		"spec": map[string]any{"data": map[string]any{"clusterId": "prod-1", "provider": "kubevirt"}},
	})

	annotation := func(key, value, by string) history.Event {
		return history.Event{Kind: history.KindAnnotation, Detail: map[string]string{
			"object": "KubernetesCluster/default/prod", "key": key, "value": value, "by": by,
		}}
	}

	// A key that does not change has no event, whoever writes it.
	expect(m.T, m.told(func() {
		m.patch(operator, `{"metadata":{"annotations":{"upgrade.vitistack.io/talos-current":"1.13.2","elsewhere":"x"}}}`)
		m.patch(provider, `{"metadata":{"annotations":{"upgrade.vitistack.io/do-not-reconcile":"talosupgrade-1","upgrade.vitistack.io/talos-current":"1.13.2"}}}`)
		m.patch(operator, `{"metadata":{"annotations":{"upgrade.vitistack.io/do-not-reconcile":null}}}`)
	}),
		annotation("talos-current", "1.13.2", "other"), annotation("do-not-reconcile", "talosupgrade-1", "client"),
		annotation("do-not-reconcile", "", "other"))
}

func (m managed) tellsOfStatus() {
	provider := clusters(m.as(providerAgent))

	events := m.told(func() {
		m.patch(provider, `{"status":{"phase":"UpgradingTalos","conditions":[{"type":"TalosUpgrade","status":"True","reason":"InProgress",
			"message":"Upgrading node cp-0 (0/1)","lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`, "status")
		// A change of the time alone is no event.
		m.patch(provider, `{"status":{"conditions":[{"type":"TalosUpgrade","status":"True","reason":"InProgress",
			"message":"Upgrading node cp-0 (0/1)","lastTransitionTime":"2026-03-01T12:00:01Z"}]}}`, "status")
		m.patch(provider, `{"status":{"phase":"Ready","conditions":null}}`, "status")
		// Without the subresource, the status is not written.
		m.patch(provider, `{"status":{"phase":"UpgradeFailed"}}`)
	})

	change := func(detail map[string]string) history.Event {
		maps.Copy(detail, map[string]string{"object": "KubernetesCluster/default/prod", "by": "client"})

		return history.Event{Kind: history.KindStatus, Detail: detail}
	}
	wrote := func(resource string) history.Event {
		return history.Event{Kind: history.KindWrite, Detail: map[string]string{
			"verb": "patch", "resource": resource, "namespace": "default", "name": "prod", "by": "client", "code": "200", "cluster": "management",
		}}
	}

	expect(m.T, events,
		change(map[string]string{"field": "phase", "value": "UpgradingTalos"}),
		change(map[string]string{"condition": "TalosUpgrade", "status": "True", "reason": "InProgress", "message": "Upgrading node cp-0 (0/1)"}),
		wrote("kubernetesclusters/status"),
		change(map[string]string{"field": "phase", "value": "Ready"}),
		change(map[string]string{"condition": "TalosUpgrade", "status": "", "reason": "", "message": ""}),
		wrote("kubernetesclusters"))
}

// keepsSecrets checks what nobody may see, and names that only mean something in the upgraded cluster.
func (m managed) keepsSecrets() {
	const hidden = "bm90LWZvci10aGUtbG9n"

	provider := m.as(providerAgent)
	events := m.told(func() {
		_, err := provider.CoreV1().Secrets(namespaceSystem).Create(m.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "prod-1"}, Data: map[string][]byte{"talosconfig": []byte("not-for-the-log")},
		}, metav1.CreateOptions{})
		if err != nil {
			m.Fatal(err)
		}

		_, err = provider.CoreV1().ConfigMaps(namespaceSystem).Create(m.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: journalName}, Data: map[string]string{"uuid": `{"phase":"intent"}`},
		}, metav1.CreateOptions{})
		if err != nil {
			m.Fatal(err)
		}
	})

	for i, resource := range []string{"secrets", "configmaps"} {
		if len(events) != 2 || events[i].Kind != history.KindWrite || events[i].Detail["resource"] != resource {
			m.Fatalf("the history tells of %+v, want writes of a Secret and of a ConfigMap", events)
		}
	}

	log, err := os.ReadFile(filepath.Join(m.server.options.Dir, "logs", "audit.log"))
	if err != nil {
		m.Fatal(err)
	}

	if !strings.Contains(string(log), `"secrets"`) || strings.Contains(string(log), hidden) || strings.Contains(string(log), "not-for-the-log") {
		m.Error("the audit log does not tell of the Secret, or tells what is in it")
	}
}

// refusesWhatTheOperatorsDo checks what the custom resources require.
func (m managed) refusesWhatTheOperatorsDo() {
	operator := m.over(m.server.Config())

	m.refuses(clusters(operator), `{"status":{"conditions":[{"type":"TalosUpgrade","status":"True","reason":"InProgress","message":""}]}}`,
		"lastTransitionTime", "status")

	planes := controlPlanes(operator)
	m.create(planes, map[string]any{
		"apiVersion": "talos.alperen.cloud/v1alpha1", "kind": "TalosControlPlane", "metadata": map[string]any{"name": "prod"},
		"spec": map[string]any{"version": "v1.13.2", "kubeVersion": "v1.34.10", "replicas": int64(3)},
	})

	m.refuses(planes, `{"spec":{"version":"1.13.4"}}`, "spec.version")
	m.refuses(planes, `{"spec":{"kubeVersion":"v1.34.9"}}`, "cannot be decreased")
	m.refuses(planes, `{"status":{"state":"Busy"}}`, "status.state", "status")
	m.patch(planes, `{"spec":{"version":"v1.13.4","kubeVersion":"v1.35.0"}}`)

	expect(m.T, m.told(func() { m.patch(planes, `{"status":{"state":"Upgrading","observedKubeVersion":"v1.34.10"}}`, "status") }),
		history.Event{Kind: history.KindStatus, Detail: map[string]string{
			"object": "TalosControlPlane/default/prod", "field": "state", "value": "Upgrading", "by": "other",
		}})
}

func (m managed) goesAndComesBack() {
	read := func(by *client) error {
		_, err := clusters(by).Get(m.Context(), "prod", metav1.GetOptions{})

		return err
	}

	provider, operator := m.as(providerAgent), m.over(m.server.Config())

	for _, down := range []bool{true, true, false} {
		if err := m.server.Down(down); err != nil {
			m.Fatal(err)
		}

		if err := read(provider); (err != nil) != down {
			m.Errorf("down %t: a client got %v", down, err)
		}

		if err := read(operator); err != nil {
			m.Errorf("down %t: past that, %v", down, err)
		}
	}
}
