// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// etcd forgets the state in which a list began; the pages before that do not contain later changes.
func TestHandler_ListCanBeContinuedForSomeMinutes(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		r.cluster.AddApp("web", 4, nil)
		pods := r.plain().CoreV1().Pods("workload")

		first, err := pods.List(r.Context(), metav1.ListOptions{Limit: 3})
		if err != nil {
			r.Fatal(err)
		}

		r.cluster.AddApp("later", 2, nil)

		rest := metav1.ListOptions{Limit: 3, Continue: first.Continue}

		for range 2 {
			if second, err := pods.List(r.Context(), rest); err != nil || len(second.Items) != 1 || second.Continue != "" {
				r.Errorf("%d pods are left, %v, want the last one", len(second.Items), err)
			}
		}

		r.until("the state to be forgotten", func() bool {
			_, err := pods.List(r.Context(), rest)

			return apierrors.IsResourceExpired(err)
		})
	})
}

// Changes by machines and kubelets change the node object as well.
func TestHandler_PatchLosesToWhatTheMachineDid(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		nodes := r.plain().CoreV1().Nodes()

		before, err := nodes.Get(r.Context(), "cp-2", metav1.GetOptions{})
		if err != nil {
			r.Fatal(err)
		}

		again, err := nodes.Get(r.Context(), "cp-2", metav1.GetOptions{})
		if err != nil || again.ResourceVersion != before.ResourceVersion || again.UID != before.UID {
			r.Errorf("read again: version %s, %v, want %s", again.ResourceVersion, err, before.ResourceVersion)
		}

		r.reboot("cp-2")
		r.until("cp-2 to be another boot", func() bool {
			now, err := nodes.Get(r.Context(), "cp-2", metav1.GetOptions{})

			return err == nil && now.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID
		})

		patch := []byte(`{"metadata":{"resourceVersion":"` + before.ResourceVersion + `"},"spec":{"unschedulable":true}}`)
		if _, err := nodes.Patch(r.Context(), "cp-2", types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			r.Errorf("%v, want a conflict", err)
		}

		if events := r.log.of(history.KindWrite); len(events) != 1 || events[0].Detail["code"] != "409" || events[0].Node != "cp-2" {
			r.Errorf("the history tells of %v, want the write that was refused", events)
		}
	})
}

// The server rejects fields that the cluster does not keep, because nobody needs them, rather than dropping them
// silently.
func TestHandler_RefusesFieldsTheClusterDoesNotKeep(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		core := r.plain().CoreV1()

		for what, patch := range map[string]string{
			"a taint":  `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`,
			"a status": `{"status":{"nodeInfo":{"bootID":"x"}}}`, "no field": `{"spec":{"colour":"red"}}`,
		} {
			_, err := core.Nodes().Patch(r.Context(), "worker-0", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				r.Errorf("%s: %v, want it refused", what, err)
			}
		}

		_, err := core.Nodes().Patch(r.Context(), "worker-0", types.MergePatchType, []byte(`not JSON`), metav1.PatchOptions{})
		if !apierrors.IsBadRequest(err) {
			r.Errorf("nonsense: %v, want it refused", err)
		}

		if err := core.Pods("kube-system").Delete(r.Context(), "kube-proxy-worker-0", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			r.Errorf("a component: %v, want it refused", err)
		}
	})
}

// A journal that cannot be parsed is stored as it was written.
func TestHandler_DamagedJournalIsServedAsItIs(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		damaged := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: kubeapi.JournalName}, Data: map[string]string{"uuid-1": "{broken", "manifests": "[]"},
		}

		made, err := r.plain().CoreV1().ConfigMaps(kubeapi.Namespace).Create(r.Context(), damaged, metav1.CreateOptions{})
		if err != nil || made.Data["uuid-1"] != "{broken" || made.Data["manifests"] != "[]" {
			r.Fatalf("stored %v, %v", made.Data, err)
		}

		if _, err := r.api.Journal(r.Context()); !errors.Is(err, kubeapi.ErrJournal) {
			r.Errorf("%v, want it damaged", err)
		}

		// In the history, a record that cannot be parsed may be unfinished.
		if told := r.log.of(history.KindJournal); len(told) != 2 || told[1].Detail["phase"] != "unreadable" {
			r.Errorf("the history tells of %v", told)
		}
	})
}

func TestHandler_ObjectsOfAnyKindAreRead(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		const version, kind = "ceph.rook.io/v1", "CephCluster"

		if _, err := r.api.Objects(r.Context(), cluster.ObjectQuery{APIVersion: version, Kind: kind}); !errors.Is(err, cluster.ErrNotFound) {
			r.Errorf("%v, want no such kind", err)
		}

		for version, kind := range map[string]string{version: kind, "example.org/v1": "Policy"} {
			if err := r.cluster.Serve(apiserver.Kind{APIVersion: version, Kind: kind}); err != nil {
				r.Fatal(err)
			}
		}

		if found, err := r.api.Objects(r.Context(), cluster.ObjectQuery{APIVersion: "example.org/v1", Kind: "Policy"}); err != nil || len(found) > 0 {
			r.Errorf("%v, %v, want none", found, err)
		}

		for _, name := range []string{"one", "two"} {
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": version, "kind": kind, "status": map[string]any{"phase": "Ready", "osds": int64(3)},
				"metadata": map[string]any{"name": name, "labels": map[string]any{"name": name}},
			}}
			if _, err := r.custom(version, "cephclusters").Namespace("rook").Create(r.Context(), object, metav1.CreateOptions{}); err != nil {
				r.Fatal(err)
			}
		}

		for _, query := range []cluster.ObjectQuery{
			{APIVersion: version, Kind: kind, Selector: "name=two"},
			{APIVersion: version, Kind: kind, Name: "two"},
			{APIVersion: version, Kind: kind, Namespace: "rook", Name: "two"},
		} {
			found, err := r.api.Objects(r.Context(), query)
			if err != nil || len(found) != 1 {
				r.Errorf("%+v: %v, %v", query, found, err)

				continue
			}

			status, _ := found[0]["status"].(map[string]any)
			if status["phase"] != "Ready" || status["osds"] != int64(3) {
				r.Errorf("%+v: %v", query, found[0])
			}
		}

		nodes, err := r.api.Objects(r.Context(), cluster.ObjectQuery{APIVersion: "v1", Kind: "Node", Name: "cp-0"})
		if err != nil || len(nodes) != 1 {
			r.Errorf("%v, %v", nodes, err)
		}
	})
}

// An identity that the cluster does not know is rejected in the handshake.
func TestHandler_OnlyClientsOfTheClusterAreLetIn(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		other, err := r.cluster.Listen(apiserver.Options{})
		if err != nil {
			r.Fatal(err)
		}
		defer other.Stop()

		stranger, err := kubeapi.New(other.Kubeconfig("stranger"), "", kubeapi.Options{DialContext: r.server.DialContext})
		if err != nil {
			r.Fatal(err)
		}
		defer stranger.Close()

		if _, err := stranger.Nodes(r.Context()); !errors.Is(err, cluster.ErrCredentials) {
			r.Errorf("%v, want the credentials not to be accepted", err)
		}
	})
}

// Stop closes both ends of all connections.
func TestHandler_StoppedServerAnswersNobody(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		if _, err := r.api.Nodes(r.Context()); err != nil {
			r.Fatal(err)
		}

		r.server.Stop()
		r.server.Stop()

		if _, err := r.api.Nodes(r.Context()); !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("%v, want it unreachable", err)
		}

		request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "https://127.0.0.1:6443/api/v1/nodes", http.NoBody)
		if err != nil {
			r.Fatal(err)
		}

		began := time.Now()

		response, err := r.api.HTTPClient().Do(request)
		if err == nil {
			_ = response.Body.Close()

			r.Error("somebody answered")
		}

		if time.Since(began) > time.Second {
			r.Errorf("it took %s to find out", time.Since(began))
		}
	})
}

// The mark that a machine left does not make our cordon the machine's, and our patch removes it.
func TestHandler_MarkOfAMachineGoesWithOurCordon(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		const installer = "factory.talos.dev/metal-installer/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515:v1.13.4"

		if err := r.cluster.World().UpgradeByHand("worker-0", installer); err != nil {
			r.Fatal(err)
		}

		byMachine := func() bool {
			nodes, err := r.api.Nodes(r.Context())
			if err != nil {
				r.Fatal(err)
			}

			return slices.ContainsFunc(nodes, func(node cluster.KubeNode) bool { return node.Name == "worker-0" && node.CordonedByTalos })
		}

		r.until("the machine to cordon its node", byMachine)

		if err := r.cluster.CordonAsPerson("worker-0", false); err != nil {
			r.Fatal(err)
		}

		if ours, err := r.api.Cordon(r.Context(), "worker-0", "run-1"); err != nil || !ours || byMachine() {
			r.Errorf("cordoned: ours %t, %v; by the machine: %t", ours, err, byMachine())
		}

		if node, err := r.plain().CoreV1().Nodes().Get(r.Context(), "worker-0", metav1.GetOptions{}); err != nil || len(node.Annotations) != 1 {
			r.Errorf("the node says %v, %v", node.Annotations, err)
		}
	})
}
