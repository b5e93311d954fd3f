// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// forget removes what a test left behind, by force.
func forget(t *testing.T, other kubernetes.Interface) {
	t.Helper()

	for _, err := range []error{
		other.CoordinationV1().Leases(kubeapi.Namespace).Delete(t.Context(), kubeapi.LeaseName, metav1.DeleteOptions{}),
		other.CoreV1().ConfigMaps(kubeapi.Namespace).Delete(t.Context(), kubeapi.JournalName, metav1.DeleteOptions{}),
		other.CoreV1().ConfigMaps(kubeapi.Namespace).Delete(t.Context(), kubeapi.PublishedName, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

func TestTheLeaseHasOneWriter(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	none, err := api.Lease(t.Context())
	if err != nil || none.ResourceVersion != "" || none.Holder != "" {
		t.Fatalf("before: %+v, %v", none, err)
	}

	wanted := cluster.Lease{
		Holder: "run-1", Acquired: time.Now().Truncate(time.Microsecond), Renewed: time.Now().Truncate(time.Microsecond),
		Duration: 30 * time.Second, Transitions: 3,
	}

	first, err := api.WriteLease(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := api.WriteLease(t.Context(), wanted); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a second creation: %v, want a conflict", err)
	}

	read, err := api.Lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if read.Holder != wanted.Holder || !read.Acquired.Equal(wanted.Acquired) || !read.Renewed.Equal(wanted.Renewed) ||
		read.Duration != wanted.Duration || read.Transitions != wanted.Transitions || read.ResourceVersion != first.ResourceVersion {
		t.Errorf("read %+v, want %+v", read, wanted)
	}

	read.Holder = ""
	if released, err := api.WriteLease(t.Context(), read); err != nil || released.Holder != "" {
		t.Errorf("released: %+v, %v", released, err)
	}

	first.Renewed = time.Now()
	if _, err := api.WriteLease(t.Context(), first); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a write with an old version: %v, want a conflict", err)
	}

	forget(t, other)

	if _, err := api.WriteLease(t.Context(), read); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a write to a deleted lease: %v, want a conflict", err)
	}
}

func entry(phase cluster.Phase) cluster.Entry {
	return cluster.Entry{
		Node: "worker-0", Phase: phase, Attempt: 2, BootID: "boot", Image: "example.org/installer:v1.13.4",
		Target: version.MustParse("1.13.4"), Previous: version.MustParse("1.13.2"), PreviousSchematic: "abc",
		Run: "run-1", Cordoned: true, Written: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
	}
}

func TestTheJournalKeepsEveryWordOfAnEntry(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	api.Identify("cluster-1")

	empty, err := api.Journal(t.Context())
	if err != nil || empty.ResourceVersion != "" || len(empty.Entries) != 0 {
		t.Fatalf("before: %+v, %v", empty, err)
	}

	first, err := api.WriteJournal(t.Context(), empty.With("uuid-1", entry(cluster.PhaseIntent)).With("uuid-2", cluster.Entry{Phase: cluster.PhaseFallback}))
	if err != nil {
		t.Fatal(err)
	}

	read, err := api.Journal(t.Context())
	if err != nil || !maps.Equal(read.Entries, first.Entries) || read.ResourceVersion != first.ResourceVersion {
		t.Errorf("read %+v, %v; want %+v", read, err, first)
	}

	if got := read.Entries["uuid-1"]; got != entry(cluster.PhaseIntent) {
		t.Errorf("entry %+v, want %+v", got, entry(cluster.PhaseIntent))
	}

	if _, err := api.WriteJournal(t.Context(), first.Without("uuid-2")); err != nil {
		t.Fatal(err)
	}

	if _, err := api.WriteJournal(t.Context(), first); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a write with an old version: %v, want a conflict", err)
	}

	object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if object.Labels[kubeapi.ManagedByLabel] != kubeapi.ManagedBy || object.Annotations[kubeapi.ClusterAnnotation] != "cluster-1" || len(object.Data) != 2 || object.Data["format"] != "2" {
		t.Errorf("stored as %+v with %v", object.ObjectMeta, object.Data)
	}

	var stored map[string]any
	if err := json.Unmarshal([]byte(object.Data["uuid-1"]), &stored); err != nil {
		t.Fatal(err)
	}

	names := []string{"attempt", "bootID", "cordoned", "image", "node", "phase", "previous", "previousSchematic", "run", "target", "written"}
	if got := slices.Sorted(maps.Keys(stored)); !slices.Equal(got, names) {
		t.Errorf("the stored fields are %v, want %v: other versions read them", got, names)
	}
}

func TestTheJournalRemembersASyncThatIsDue(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	due := &cluster.ManifestsDue{Run: "run-7", Written: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}

	written, err := api.WriteJournal(t.Context(), cluster.Journal{}.WithManifests(due).With("uuid-1", entry(cluster.PhaseIntent)))
	if err != nil || written.Manifests == nil {
		t.Fatalf("written as %+v, %v", written, err)
	}

	read, err := api.Journal(t.Context())
	if err != nil || read.Manifests == nil || *read.Manifests != *due || len(read.Entries) != 1 {
		t.Errorf("read %+v, %v; want %+v beside one entry", read, err, due)
	}

	object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if got, want := object.Data["manifests"], `{"run":"run-7","written":"2026-03-04T05:06:07Z"}`; got != want {
		t.Errorf("stored as %s, want %s: other versions read it", got, want)
	}

	if _, err := api.WriteJournal(t.Context(), written.WithManifests(nil)); err != nil {
		t.Fatal(err)
	}

	if read, err = api.Journal(t.Context()); err != nil || read.Manifests != nil || len(read.Entries) != 1 {
		t.Errorf("after the sync %+v, %v; want the entry alone", read, err)
	}
}

func TestADamagedJournalIsNotTakenForAnEmptyOne(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	for name, pair := range map[string][2]string{
		"no JSON":                  {"uuid-1", "installed"},
		"unknown phase":            {"uuid-1", `{"phase":"half-way"}`},
		"no version":               {"uuid-1", `{"phase":"intent","target":"latest"}`},
		"a sync of no run":         {"manifests", `{}`},
		"a sync at no time at all": {"manifests", `{"run":"run-7","written":"yesterday"}`},
	} {
		key, value := pair[0], pair[1]

		_, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: kubeapi.JournalName, Labels: map[string]string{kubeapi.ManagedByLabel: kubeapi.ManagedBy}},
			Data:       map[string]string{key: value},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		_, err = api.Journal(t.Context())
		if !errors.Is(err, kubeapi.ErrJournal) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "kubectl") {
			t.Errorf("%s: %v, want the key and a way to repair it", name, err)
		}

		if kept, err := api.Forget(t.Context(), ""); err != nil || len(kept) != 1 {
			t.Errorf("%s: forgotten, keeping %v, %v", name, kept, err)
		}

		forget(t, other)
	}
}

func TestForgetRemovesWhatIsOursAndFinished(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	const id = "cluster-1"

	api.Identify(id)

	moving := cluster.Lease{Holder: "run-9", Renewed: time.Now(), Duration: 30 * time.Second}

	for name, test := range map[string]struct {
		lease   cluster.Lease
		journal cluster.Journal
		id      string
		kept    []string
	}{
		"a finished run":       {cluster.Lease{}, cluster.Journal{}, id, nil},
		"a run that died":      {moving, cluster.Journal{}.With("u", entry(cluster.PhaseFallback)), id, nil},
		"an unfinished node":   {cluster.Lease{}, cluster.Journal{}.With("u", entry(cluster.PhaseInstalled)), id, []string{"the upgrade of node worker-0 to Talos 1.13.4 is unfinished (phase installed)"}},
		"manifests due":        {cluster.Lease{}, cluster.Journal{}.WithManifests(&cluster.ManifestsDue{Run: "run-7"}), id, []string{"the bootstrap manifests have not been synced since the roll of run run-7"}},
		"a snapshot of etcd":   {cluster.Lease{}, cluster.Journal{}.WithSnapshot(&cluster.EtcdSnapshot{Path: "/x.db", SHA256: strings.Repeat("0a", 32)}), id, nil},
		"another cluster's":    {cluster.Lease{}, cluster.Journal{}, "cluster-2", []string{"belongs to cluster cluster-1", ""}},
		"a cluster without ID": {cluster.Lease{}, cluster.Journal{}, "", nil},
	} {
		if _, err := api.WriteLease(t.Context(), test.lease); err != nil {
			t.Fatal(err)
		}

		if _, err := api.WriteJournal(t.Context(), test.journal); err != nil {
			t.Fatal(err)
		}

		kept, err := api.Forget(t.Context(), test.id)
		if err != nil || len(kept) != len(test.kept) {
			t.Errorf("%s: kept %q, %v; want %q", name, kept, err, test.kept)
		}

		for i := range min(len(kept), len(test.kept)) {
			if !strings.Contains(kept[i], test.kept[i]) {
				t.Errorf("%s: kept %q, want %q", name, kept[i], test.kept[i])
			}
		}

		forget(t, other)
	}
}

func TestForgetLeavesARunningUpgradeAlone(t *testing.T) {
	holder, _ := live(t)

	lease, err := holder.WriteLease(t.Context(), cluster.Lease{Holder: "run-9", Renewed: time.Now(), Duration: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := holder.WriteJournal(t.Context(), cluster.Journal{}); err != nil {
		t.Fatal(err)
	}

	slept := time.Duration(0)

	// While the one looks, the other renews, as it does every ten seconds.
	api, other := liveWith(t, func(ctx context.Context, duration time.Duration) error {
		if slept += duration; slept == 10*time.Second {
			lease.Renewed = time.Now()

			_, err := holder.WriteLease(ctx, lease)

			return err
		}

		return ctx.Err()
	})
	defer forget(t, other)

	kept, err := api.Forget(t.Context(), "")
	if err != nil || len(kept) != 2 || !strings.Contains(kept[0], "run-9 holds it and is at work") {
		t.Errorf("kept %q, %v", kept, err)
	}

	if journal, err := api.Journal(t.Context()); err != nil || journal.ResourceVersion == "" {
		t.Errorf("the journal is gone: %+v, %v", journal, err)
	}
}

func TestForgetLeavesWhatSomebodyElseUses(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	_, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: kubeapi.PublishedName},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if kept, err := api.Forget(t.Context(), ""); err != nil || len(kept) != 1 || !strings.Contains(kept[0], kubeapi.ManagedByLabel) {
		t.Errorf("an object without our label: kept %q, %v", kept, err)
	}

	forget(t, other)

	if kept, err := api.Forget(t.Context(), ""); err != nil || len(kept) != 0 {
		t.Errorf("nothing there: kept %q, %v", kept, err)
	}
}
