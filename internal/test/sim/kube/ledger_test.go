// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// told returns the events of the requests that act makes, once they have been answered.
func told(t *testing.T, s shared, act func()) []history.Event {
	t.Helper()

	if err := s.server.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}

	before := s.notes.count()

	act()

	if err := s.server.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}

	return s.notes.since(before)
}

func expect(t *testing.T, events []history.Event, wanted ...history.Event) {
	t.Helper()

	if len(events) != len(wanted) {
		t.Fatalf("%d events, want %d:\n%+v", len(events), len(wanted), events)
	}

	for i, event := range events {
		if event.Node != wanted[i].Node || event.Kind != wanted[i].Kind || !maps.Equal(event.Detail, wanted[i].Detail) {
			t.Errorf("event %d is %s %s %v, want %s %s %v", i,
				event.Node, event.Kind, event.Detail, wanted[i].Node, wanted[i].Kind, wanted[i].Detail)
		}
	}
}

func patchNode(t *testing.T, client kubernetes.Interface, node, patch string, options metav1.PatchOptions) {
	t.Helper()

	_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), options)
	if err != nil {
		t.Fatal(err)
	}
}

const (
	cordonPatch   = `{"spec":{"unschedulable":true}}`
	uncordonPatch = `{"spec":{"unschedulable":null}}`
)

func TestLedger_CordonIsToldOnceWithWhoSetIt(t *testing.T) {
	s := need(t)
	provider, person := s.as(t, providerAgent), s.as(t, "kubectl/v1.36.0")

	events := told(t, s, func() {
		patchNode(t, provider, "worker-0", cordonPatch, metav1.PatchOptions{})
		patchNode(t, provider, "worker-0", cordonPatch, metav1.PatchOptions{})
		patchNode(t, person, "worker-0", uncordonPatch, metav1.PatchOptions{})
	})

	expect(t, events,
		history.Event{Node: "worker-0", Kind: history.KindCordon, Detail: map[string]string{"unschedulable": "true", "by": "client"}},
		history.Event{Node: "worker-0", Kind: history.KindWrite, Detail: map[string]string{
			"verb": "patch", "resource": "nodes", "namespace": "", "name": "worker-0", "by": "client", "code": "200",
		}},
		history.Event{Node: "worker-0", Kind: history.KindCordon, Detail: map[string]string{"unschedulable": "false", "by": "other"}},
	)
}

func TestLedger_ReadsQuestionsAndDryRunsAreNotTold(t *testing.T) {
	s := need(t)
	provider := s.as(t, providerAgent)

	events := told(t, s, func() {
		getNode(t, provider, "worker-0")
		patchNode(t, provider, "worker-0", cordonPatch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})

		if _, err := provider.Discovery().ServerVersion(); err != nil {
			t.Fatal(err)
		}
	})

	expect(t, events)
}

func TestLedger_CordonedNodeCarriesTheTaintOfTheController(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	patchNode(t, client, "worker-0", cordonPatch, metav1.PatchOptions{})
	until(t, "the taint", func() bool { return hasTaint(getNode(t, client, "worker-0"), corev1.TaintNodeUnschedulable) })

	patchNode(t, client, "worker-0", uncordonPatch, metav1.PatchOptions{})
	until(t, "no taint", func() bool { return !hasTaint(getNode(t, client, "worker-0"), corev1.TaintNodeUnschedulable) })
}

func TestLedger_LeaseIsToldByWhatHappensToIt(t *testing.T) {
	s := need(t)
	leases := s.as(t, providerAgent).CoordinationV1().Leases(namespaceSystem)
	holder, other := "run-1", "run-2"

	write := func(lease *coordinationv1.Lease, holder *string) *coordinationv1.Lease {
		t.Helper()

		now := metav1.NewMicroTime(time.Now())
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = holder, &now

		written, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return written
	}

	events := told(t, s, func() {
		now := metav1.NewMicroTime(time.Now())

		lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: leaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		stale := lease.DeepCopy()
		lease = write(lease, &holder)
		lease = write(lease, &other)
		write(lease, nil)

		if _, err := leases.Update(t.Context(), stale, metav1.UpdateOptions{}); err == nil {
			t.Error("a stale lease was accepted")
		}

		if err := leases.Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})

	lease := func(holder, action string) history.Event {
		return history.Event{Kind: history.KindLease, Detail: map[string]string{"holder": holder, "action": action, "by": "client"}}
	}
	wrote := func(verb, code string) history.Event {
		return history.Event{Kind: history.KindWrite, Detail: map[string]string{
			"verb": verb, "resource": "leases", "namespace": namespaceSystem, "name": leaseName, "by": "client", "code": code,
		}}
	}

	expect(t, events,
		lease("run-1", "acquire"), lease("run-1", "renew"), lease("run-2", "acquire"), lease("", "release"),
		wrote("update", "409"), wrote("delete", "200"))
}

func TestLedger_JournalIsToldByEntry(t *testing.T) {
	s := need(t)
	machine := s.world.Machines()[3]

	// Earlier versions name a machine by the UUID of its hardware.
	for _, key := range []string{machine.MachineID, machine.UUID} {
		journalIsTold(t, s, key)
	}
}

func journalIsTold(t *testing.T, s shared, key string) {
	t.Helper()

	maps := s.as(t, providerAgent).CoreV1().ConfigMaps(namespaceSystem)
	value := `{"phase":"intent","run":"r1"}`

	events := told(t, s, func() {
		journal, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: journalName},
			Data:       map[string]string{key: value},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		journal.Data = map[string]string{}

		if _, err := maps.Update(t.Context(), journal, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		if err := maps.Delete(t.Context(), journalName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})

	expect(t, events,
		history.Event{Node: "worker-0", Kind: history.KindJournal, Detail: map[string]string{
			"key": key, "phase": "intent", "run": "r1", "value": value, "by": "client",
		}},
		history.Event{Node: "worker-0", Kind: history.KindJournal, Detail: map[string]string{
			"key": key, "phase": "", "run": "r1", "value": "", "by": "client",
		}},
		history.Event{Kind: history.KindWrite, Detail: map[string]string{
			"verb": "delete", "resource": "configmaps", "namespace": namespaceSystem, "name": journalName, "by": "client", "code": "200",
		}},
	)
}

// TestLedger_JournalIsToldWhenTheAnswerHasNoObject: the audit log has the answers, which do not contain the
// journal.
func TestLedger_JournalIsToldWhenTheAnswerHasNoObject(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent).CoreV1().RESTClient()

	write := func(request *rest.Request, body string) {
		answer, err := request.Namespace(namespaceSystem).Resource("configmaps").Param("includeObject", "None").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Body([]byte(body)).DoRaw(t.Context())
		if err != nil || strings.Contains(string(answer), "intent") {
			t.Fatalf("%s, %v", answer, err)
		}
	}
	patch := func(body string) { write(client.Patch(types.MergePatchType).Name(journalName), body) }

	events := told(t, s, func() {
		write(client.Post().SetHeader("Content-Type", "application/json"),
			`{"metadata":{"name":"`+journalName+`"},"data":{"machine-1":"{\"phase\":\"intent\",\"run\":\"r1\"}","machine-2":"x"}}`)
		patch(`{"data":{"machine-1":"{\"phase\":\"installed\",\"run\":\"r1\"}"}}`)
		patch(`{"data":{"machine-1":null}}`)
	})

	if err := s.as(t, providerAgent).CoreV1().ConfigMaps(namespaceSystem).Delete(t.Context(), journalName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	entry := func(key, phase, run, value string) history.Event {
		return history.Event{Kind: history.KindJournal, Detail: map[string]string{"key": key, "phase": phase, "run": run, "value": value, "by": "client"}}
	}

	expect(t, events,
		entry("machine-1", "intent", "r1", `{"phase":"intent","run":"r1"}`), entry("machine-2", "", "", "x"),
		entry("machine-1", "installed", "r1", `{"phase":"installed","run":"r1"}`), entry("machine-1", "", "r1", ""),
	)
}

func TestLedger_AnnotationsOfTheProtocolAreToldByKey(t *testing.T) {
	s := need(t)
	maps := s.as(t, providerAgent).CoreV1().ConfigMaps(namespaceSystem)

	events := told(t, s, func() {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name:        leaseName,
			Annotations: map[string]string{annotationPrefix + "talos-status": "pending", "elsewhere": "x"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		patch := `{"metadata":{"annotations":{"upgrade.vitistack.io/talos-status":null,"upgrade.vitistack.io/talos-progress":"1/5"}}}`
		if _, err := maps.Patch(t.Context(), leaseName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}

		if err := maps.Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})

	annotation := func(key, value string) history.Event {
		return history.Event{Kind: history.KindAnnotation, Detail: map[string]string{
			"object": "ConfigMap/kube-system/talosupgrade", "key": key, "value": value, "by": "client",
		}}
	}

	expect(t, events,
		annotation("talos-status", "pending"),
		annotation("talos-progress", "1/5"), annotation("talos-status", ""),
		annotation("talos-progress", ""))
}

func TestLedger_SyncWaitsForWhatWasAnswered(t *testing.T) {
	s := need(t)
	maps := s.as(t, providerAgent).CoreV1().ConfigMaps("default")

	for range 100 {
		events := told(t, s, func() {
			object, err := maps.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "sync-"},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}

			if err := maps.Delete(t.Context(), object.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})

		verbs := make([]string, 0, len(events))
		for _, event := range events {
			verbs = append(verbs, event.Detail["verb"])
		}

		if !slices.Equal(verbs, []string{"create", "delete"}) {
			t.Fatalf("after Sync the history tells of %v", verbs)
		}
	}
}

// TestLedger_WriteWhoseClientLeftIsToldWhenItTookEffect: the API server logs it as failed, and without that event
// the next writer would be blamed for it. Sync does not wait for such a write, because nobody was answered: the API
// server may start it later.
func TestLedger_WriteWhoseClientLeftIsToldWhenItTookEffect(t *testing.T) {
	const cutOff, patience = 100, 10 * time.Second

	s := need(t)
	provider := s.as(t, providerAgent).CoreV1().ConfigMaps(namespaceSystem)
	person := s.as(t, "kubectl/v1.36.0").CoreV1().ConfigMaps(namespaceSystem)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: journalName}}
	read, left, stands := s.notes.count(), 0, ""

	t.Cleanup(func() {
		if err := person.Delete(context.WithoutCancel(t.Context()), journalName, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	// agree reports whether the journal is the one in the history, and returns it.
	agree := func() (journal string, agree bool) {
		now, err := person.Get(t.Context(), journalName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}

		if err := s.server.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}

		for _, event := range s.notes.since(read) {
			read++

			if event.Kind == history.KindJournal {
				stands = event.Detail["value"]
			}
		}

		return now.Data["machine"], now.Data["machine"] == stands
	}

	for i := range cutOff {
		object.Data = map[string]string{"machine": fmt.Sprintf(`{"phase":"intent","run":"run-%d"}`, i)}

		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%60)*100*time.Microsecond)

		_, err := provider.Update(ctx, object, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = provider.Create(ctx, object, metav1.CreateOptions{})
		}

		if err != nil {
			left++
		}

		cancel()

		for deadline := time.Now().Add(patience); ; {
			journal, ok := agree()
			if ok {
				break
			}

			if time.Now().After(deadline) {
				t.Fatalf("write %d: the journal is %q, and the history says %q", i, journal, stands)
			}
		}
	}

	t.Logf("%d of %d clients left before they had their answer", left, cutOff)
}

// patched returns the audit line of a patch of annotations that was answered with an object.
func patched(t *testing.T, agent string, version int, patch, now map[string]any) auditEvent {
	t.Helper()

	object := func(annotations map[string]any) json.RawMessage {
		prefixed := map[string]any{}
		for key, value := range annotations {
			prefixed[annotationPrefix+key] = value
		}

		text, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"annotations": prefixed, "resourceVersion": fmt.Sprint(version),
		}})
		if err != nil {
			t.Fatal(err)
		}

		return text
	}

	event := auditEvent{Verb: "patch", UserAgent: agent, RequestObject: object(patch), ResponseObject: object(now)}
	event.ObjectRef.APIGroup, event.ObjectRef.Resource = "vitistack.io", "kubernetesclusters"
	event.ObjectRef.Namespace, event.ObjectRef.Name = "tenant-a", "prod"
	event.ResponseStatus.Code = 200

	return event
}

func TestLedger_WritersOfOneObjectAreToldApart(t *testing.T) {
	t.Parallel()

	type keys = map[string]any

	first := patched(t, providerAgent, 11, keys{"do-not-reconcile": "talosupgrade-1"}, keys{"do-not-reconcile": "talosupgrade-1"})
	second := patched(t, "operator", 12, keys{"talos-status": "failed"}, keys{"do-not-reconcile": "talosupgrade-1", "talos-status": "failed"})
	third := patched(t, providerAgent, 13, keys{"talos-status": "in-progress"},
		keys{"do-not-reconcile": "talosupgrade-1", "talos-status": "in-progress"})

	told := func(key, value, by string) history.Event {
		return history.Event{Kind: history.KindAnnotation, Detail: map[string]string{
			"object": "KubernetesCluster/tenant-a/prod", "key": key, "value": value, "by": by,
		}}
	}
	late := func(by string) history.Event {
		return history.Event{Kind: history.KindWrite, Detail: map[string]string{
			"verb": "patch", "resource": "kubernetesclusters", "namespace": "tenant-a", "name": "prod", "by": by, "code": "200",
		}}
	}

	for name, test := range map[string]struct {
		lines []auditEvent
		want  []history.Event
	}{
		"in order": {[]auditEvent{first, second, third}, []history.Event{
			told("do-not-reconcile", "talosupgrade-1", "client"), told("talos-status", "failed", "other"), told("talos-status", "in-progress", "client"),
		}},
		"the first is read last": {[]auditEvent{second, third, first}, []history.Event{
			told("talos-status", "failed", "other"), told("talos-status", "in-progress", "client"), told("do-not-reconcile", "talosupgrade-1", "client"),
		}},
		"what is overwritten already": {[]auditEvent{third, second}, []history.Event{
			told("talos-status", "in-progress", "client"), late("other"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			notes := &notebook{}
			ledger := newLedger(notes)

			for _, line := range test.lines {
				ledger.take(line)
			}

			expect(t, notes.since(0), test.want...)
		})
	}
}
