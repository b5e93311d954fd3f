// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// object returns the current object of the operator.
func (o *operated) object() map[string]any {
	o.t.Helper()

	object, err := o.objects.Get(o.t.Context(), o.of)
	if err != nil {
		o.t.Fatal(err)
	}

	return object
}

// annotation returns the value of an annotation; empty if it is missing.
func (o *operated) annotation(key string) string {
	o.t.Helper()

	value, _ := at(o.object(), "metadata", "annotations", keyPrefix+key).(string)

	return value
}

// wantAnnotations fails the test unless the object has these annotations; one with an empty value has to be missing.
func (o *operated) wantAnnotations(want map[string]string) {
	o.t.Helper()

	object := o.object()

	for key, value := range want {
		if got, _ := at(object, "metadata", "annotations", keyPrefix+key).(string); got != value {
			o.t.Errorf("%s of %s is %q, want %q", key, o.of, got, value)
		}
	}
}

// annotate sets annotations as a person does; an empty value removes one.
func (o *operated) annotate(values map[string]string) {
	o.t.Helper()

	changes := map[string]any{}

	for key, value := range values {
		if changes[keyPrefix+key] = value; value == "" {
			changes[keyPrefix+key] = nil
		}
	}

	o.patch("", map[string]any{"metadata": map[string]any{"annotations": changes}})
}

func (o *operated) patch(part string, patch map[string]any) {
	o.t.Helper()

	if err := o.objects.Patch(o.t.Context(), o.of, part, patch); err != nil {
		o.t.Fatal(err)
	}
}

// wantPhase fails the test unless status.phase is the phase and the conditions, by type, have this status and reason,
// as "False Completed".
func (o *operated) wantPhase(phase string, conditions map[string]string) {
	o.t.Helper()

	object := o.object()
	if got := at(object, "status", "phase"); got != phase {
		o.t.Errorf("the phase of %s is %v, want %s", o.of, got, phase)
	}

	got := map[string]string{}
	listed, _ := at(object, "status", "conditions").([]any)

	for _, condition := range listed {
		kind, _ := at(condition, "type").(string)
		status, _ := at(condition, "status").(string)
		reason, _ := at(condition, "reason").(string)
		got[kind] = status + " " + reason
	}

	for kind, want := range conditions {
		if got[kind] != want {
			o.t.Errorf("condition %s of %s is %q, want %q", kind, o.of, got[kind], want)
		}
	}
}

// wantSecret fails the test unless the operator's Secret has these values.
func (o *operated) wantSecret(want map[string]string) {
	o.t.Helper()

	secret, err := o.core.CoreV1().Secrets(tenant).Get(o.t.Context(), keeping, metav1.GetOptions{})
	if err != nil {
		o.t.Fatal(err)
	}

	for key, value := range want {
		if got := string(secret.Data[key]); got != value {
			o.t.Errorf("%s of the Secret is %q, want %q", key, got, value)
		}
	}
}

// reasons returns how often Events of each reason were recorded for objects of the kind, by name.
func reasons(t *testing.T, of client.Interface, namespace, kind string) map[string]map[string]int {
	t.Helper()

	listed, err := of.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	found := map[string]map[string]int{}

	for _, event := range listed.Items {
		if event.InvolvedObject.Kind != kind {
			continue
		}

		if found[event.InvolvedObject.Name] == nil {
			found[event.InvolvedObject.Name] = map[string]int{}
		}

		found[event.InvolvedObject.Name][event.Reason] += max(1, int(event.Count))
	}

	return found
}

// written returns the values of an annotation of the object that we wrote or, if ours is false, that others wrote; a
// removal is empty.
func (o *operated) written(key string, ours bool) []string {
	o.t.Helper()

	var values []string

	for _, event := range o.history() {
		if o.about(event, key) && (event.Detail["by"] == "client") == ours {
			values = append(values, event.Detail["value"])
		}
	}

	return values
}

// about reports whether an event is a change of an annotation of the object.
func (o *operated) about(event history.Event, key string) bool {
	return event.Kind == history.KindAnnotation && event.Detail["object"] == o.of.Kind+"/"+o.of.Namespace+"/"+o.of.Name && event.Detail["key"] == key
}

// awaitAnnotation waits until the annotation is set to a value that matches.
func (o *operated) awaitAnnotation(key string, match func(string) bool) {
	o.t.Helper()
	o.await(key+" being written", func(event history.Event) bool { return o.about(event, key) && match(event.Detail["value"]) })
}

// wantHeld makes the verdict check that the operator was held whenever we disturbed anything, and fails the test if
// it is held now.
func (o *operated) wantHeld() {
	o.t.Helper()

	o.policy = append(o.policy, checker.Operated(o.of.Kind+"/"+o.of.Namespace+"/"+o.of.Name))
	o.wantAnnotations(map[string]string{keyHold: ""})
}

// wantIdleOperator fails the test unless everything that was installed or configured was done by us, and we asked the
// operator for nothing.
func (o *operated) wantIdleOperator() {
	o.t.Helper()

	for _, key := range []string{"talos-target", "kubernetes-target"} {
		if values := o.written(key, true); len(values) > 0 {
			o.t.Errorf("we wrote %s: %v", key, values)
		}
	}

	for _, event := range o.history() {
		if (event.Kind == history.KindConfig || event.Kind == history.KindInstall) && event.Detail["by"] != "client" {
			o.t.Errorf("the operator changed %s: %s %v", event.Node, event.Kind, event.Detail)
		}
	}
}

// wantDone fails the test unless both halves are at the versions and no upgrade is in progress.
func (o *operated) wantDone(talos, kubernetes string, more map[string]string) {
	o.t.Helper()

	want := map[string]string{
		"talos-current": talos, "talos-status": "completed", "talos-target": "",
		"kubernetes-current": kubernetes, "kubernetes-status": "completed", "kubernetes-target": "",
		"failed-nodes": "", keyHold: "",
	}
	maps.Copy(want, more)
	o.wantAnnotations(want)
}
