// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestTheJournalRemembersTheSnapshotOfEtcd(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	taken := &cluster.EtcdSnapshot{
		Path: "/backups/prod-20260304T050607Z.db", Size: 25_194_528, SHA256: strings.Repeat("0a", 32),
		Taken: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Run: "run-7",
		Target: cluster.Target{Talos: version.MustParse("1.13.4"), InstallerImage: "mirror.example/installer"}, Closed: true,
	}

	written, err := api.WriteJournal(t.Context(), cluster.Journal{}.WithSnapshot(taken).With("uuid-1", entry(cluster.PhaseIntent)))
	if err != nil || written.Snapshot == nil {
		t.Fatalf("written as %+v, %v", written, err)
	}

	read, err := api.Journal(t.Context())
	if err != nil || read.Snapshot == nil || *read.Snapshot != *taken || len(read.Entries) != 1 || read.Manifests != nil {
		t.Errorf("read %+v, %v; want %+v beside one entry", read, err, taken)
	}

	object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	want := `{"path":"/backups/prod-20260304T050607Z.db","size":25194528,"sha256":"` + taken.SHA256 +
		`","taken":"2026-03-04T05:06:07Z","talos":"1.13.4","installerImage":"mirror.example/installer","run":"run-7","closed":true}`
	if got := object.Data["etcd-snapshot"]; got != want {
		t.Errorf("stored as %s, want %s: other versions read it", got, want)
	}

	if written, err = api.WriteJournal(t.Context(), written.WithSnapshot(nil)); err != nil {
		t.Fatal(err)
	}

	if read, err = api.Journal(t.Context()); err != nil || read.Snapshot != nil || len(read.Entries) != 1 {
		t.Errorf("without it %+v, %v; want the entry alone", read, err)
	}

	stillUnderWay(t, api, other, written, *taken)
}

// stillUnderWay is the record for a roll to each node's own image that has not
// ended: as it was stored before the record told either, and as it still is.
func stillUnderWay(t *testing.T, api *kubeapi.Client, other kubernetes.Interface, journal cluster.Journal, taken cluster.EtcdSnapshot) {
	t.Helper()

	taken.Target.InstallerImage, taken.Closed = "", false

	if _, err := api.WriteJournal(t.Context(), journal.WithSnapshot(&taken)); err != nil {
		t.Fatal(err)
	}

	object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	want := `{"path":"/backups/prod-20260304T050607Z.db","size":25194528,"sha256":"` + taken.SHA256 +
		`","taken":"2026-03-04T05:06:07Z","talos":"1.13.4","run":"run-7"}`
	if got := object.Data["etcd-snapshot"]; got != want {
		t.Errorf("stored as %s, want %s: older versions wrote it", got, want)
	}

	read, err := api.Journal(t.Context())
	if err != nil || read.Snapshot == nil || *read.Snapshot != taken || !read.Snapshot.Covers(taken.Target) {
		t.Errorf("read %+v, %v; want %+v, for a roll that is under way", read.Snapshot, err, taken)
	}
}

// TestADamagedRecordOfASnapshotIsNamed, and is no unfinished work either.
func TestADamagedRecordOfASnapshotIsNamed(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	for name, value := range map[string]string{
		"no JSON":    "taken",
		"no path":    `{"sha256":"` + strings.Repeat("0a", 32) + `"}`,
		"no sum":     `{"path":"/backups/x.db","sha256":"0a"}`,
		"no version": `{"path":"/backups/x.db","sha256":"` + strings.Repeat("0a", 32) + `","kubernetes":"latest"}`,
	} {
		_, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: kubeapi.JournalName, Labels: map[string]string{kubeapi.ManagedByLabel: kubeapi.ManagedBy}},
			Data:       map[string]string{"etcd-snapshot": value},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		_, err = api.Journal(t.Context())
		if !errors.Is(err, kubeapi.ErrJournal) || !strings.Contains(err.Error(), `"etcd-snapshot"`) || !strings.Contains(err.Error(), "kubectl") {
			t.Errorf("%s: %v, want the key and a way to repair it", name, err)
		}

		if kept, err := api.Forget(t.Context(), ""); err != nil || len(kept) != 0 {
			t.Errorf("%s: forgotten, keeping %v, %v", name, kept, err)
		}

		forget(t, other)
	}
}
