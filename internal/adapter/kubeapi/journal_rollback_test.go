// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestTheJournalKeepsWhatARollbackNeeds, in every phase, under names that other
// versions read.
func TestTheJournalKeepsWhatARollbackNeeds(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	var journal cluster.Journal

	for _, phase := range []cluster.Phase{
		cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseFallback, cluster.PhaseRollingBack, cluster.PhaseRolledBack,
	} {
		wanted := entry(phase)
		wanted.PreviousEtcd = "3.6.9"

		written, err := api.WriteJournal(t.Context(), journal.With("uuid-1", wanted))
		if err != nil {
			t.Fatal(err)
		}

		read, err := api.Journal(t.Context())
		if err != nil || read.Entries["uuid-1"] != wanted {
			t.Errorf("%s: read %+v, %v; want %+v", phase, read.Entries["uuid-1"], err, wanted)
		}

		object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		var stored map[string]any
		if err := json.Unmarshal([]byte(object.Data["uuid-1"]), &stored); err != nil {
			t.Fatal(err)
		}

		if stored["phase"] != string(phase) || stored["previousEtcd"] != "3.6.9" {
			t.Errorf("%s: stored as %v", phase, stored)
		}

		journal = written
	}
}

// TestAnEntryOfAnEarlierVersionKnowsNoEtcd: it is read as it was written.
func TestAnEntryOfAnEarlierVersionKnowsNoEtcd(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	_, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: kubeapi.JournalName, Labels: map[string]string{kubeapi.ManagedByLabel: kubeapi.ManagedBy}},
		Data: map[string]string{
			"uuid-1": `{"node":"cp-1","phase":"rolled-back","attempt":1,"bootID":"b","image":"i:v1","target":"1.13.4","run":"r","cordoned":false,"written":"2026-03-04T05:06:07Z"}`,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	read, err := api.Journal(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if got := read.Entries["uuid-1"]; got.PreviousEtcd != "" || got.Phase != cluster.PhaseRolledBack || !got.Returned() || got.Open() {
		t.Errorf("read as %+v", got)
	}
}

// TestAPhaseOfTheFutureIsRefused, and named with its entry: what it means for the
// node nobody knows here.
func TestAPhaseOfTheFutureIsRefused(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	_, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: kubeapi.JournalName, Labels: map[string]string{kubeapi.ManagedByLabel: kubeapi.ManagedBy}},
		Data:       map[string]string{"uuid-1": `{"node":"cp-1","phase":"rolling-sideways","attempt":1}`},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	_, err = api.Journal(t.Context())
	if !errors.Is(err, kubeapi.ErrJournal) {
		t.Fatalf("%v, want the journal to be damaged", err)
	}

	for _, part := range []string{"uuid-1", `unknown phase "rolling-sideways"`, "kubectl"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// TestWhatIsBeingRolledBackIsNotForgotten; what was rolled back is.
func TestWhatIsBeingRolledBackIsNotForgotten(t *testing.T) {
	for phase, want := range map[cluster.Phase][]string{
		cluster.PhaseRollingBack: {"unfinished (phase rolling-back)"},
		cluster.PhaseRolledBack:  nil,
	} {
		api, other := live(t)
		api.Identify("cluster-1")

		if _, err := api.WriteJournal(t.Context(), cluster.Journal{}.With("uuid-1", entry(phase))); err != nil {
			t.Fatal(err)
		}

		kept, err := api.Forget(t.Context(), "cluster-1")
		if err != nil || !slices.EqualFunc(kept, want, strings.Contains) {
			t.Errorf("%s: kept %q, %v; want %q", phase, kept, err, want)
		}

		forget(t, other)
	}
}
