// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

func TestLease_Suspension(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 24, 3, 10, 0, 0, time.UTC))

	managed := func(fields string, when *metav1.Time) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{
			{Manager: "terraform-provider-talosupgrade", Time: &metav1.Time{Time: at.Add(time.Hour)}, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)},
			{Manager: "kubectl-annotate", Time: when, FieldsV1: metav1.NewFieldsV1(fields)},
			{Manager: "nobody"},
		}
	}

	const owned = `{"f:metadata":{"f:annotations":{".":{},"f:upgrade.vitistack.io/suspend":{}}}}`

	for name, given := range map[string]struct {
		value   string
		managed []metav1.ManagedFieldsEntry
		want    string
	}{
		"with a reason":       {" ola: storage is degraded\n", managed(owned, &at), "since 2026-11-24T03:10:00Z (kubectl-annotate): ola: storage is degraded"},
		"without a reason":    {"", managed(owned, &at), "since 2026-11-24T03:10:00Z (kubectl-annotate)"},
		"at an unknown time":  {"true", managed(owned, nil), "by somebody (kubectl-annotate): true"},
		"by nobody known":     {"storage", managed(`{"f:metadata":{"f:labels":{}}}`, &at), "by somebody: storage"},
		"fields of no sense":  {"storage", managed(`["f:metadata"]`, &at), "by somebody: storage"},
		"fields not recorded": {"storage", nil, "by somebody: storage"},
		"taken back":          {protocol.SuspendNot, managed(owned, &at), ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := suspensionOf(metav1.ObjectMeta{Annotations: map[string]string{protocol.KeySuspend: given.value}, ManagedFields: given.managed})

			switch {
			case found == nil && given.want != "":
				t.Errorf("not suspended, want %q", given.want)
			case found != nil && found.String() != given.want:
				t.Errorf("suspended %q, want %q", found, given.want)
			}
		})
	}

	if found := suspensionOf(metav1.ObjectMeta{Annotations: map[string]string{"upgrade.vitistack.io/other": "x"}}); found != nil {
		t.Errorf("another annotation suspends: %v", found)
	}
}
