// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// confirmedAnnotation is where the journal stores that an upgrade of the machine with
// the ID "id-1" was confirmed.
const confirmedAnnotation = "talosupgrade.vitistack.io/confirmed-2"

// TestWhatWasConfirmedIsNoKeyOfTheJournal: earlier versions of the provider take every
// key that they do not know for a machine with unfinished work. What they write has
// nothing confirmed.
func TestWhatWasConfirmedIsNoKeyOfTheJournal(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	objects := other.CoreV1().ConfigMaps(kubeapi.Namespace)

	if _, err := api.WriteJournal(t.Context(), cluster.Journal{}.WithConfirmed("id-1", entry(cluster.PhaseInstalled), nil)); err != nil {
		t.Fatal(err)
	}

	object, err := objects.Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if len(object.Data) != 1 || object.Data["format"] != "2" || !strings.Contains(object.Annotations[confirmedAnnotation], `"machines":{"id-1":{"node":"worker-0"`) {
		t.Errorf("stored as %v, %v", object.Data, object.Annotations)
	}

	delete(object.Annotations, confirmedAnnotation)

	if _, err := objects.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if read, err := api.Journal(t.Context()); err != nil || len(read.Confirmed) > 0 {
		t.Errorf("read %+v, %v", read, err)
	}
}

// TestWhatWasConfirmedIsWorthNothingWhereItCannotBeRead, and keeps nobody from upgrading.
func TestWhatWasConfirmedIsWorthNothingWhereItCannotBeRead(t *testing.T) {
	for _, damaged := range []string{
		"", "{", `{}`, `[7]`, `[{"machines":{"id-1":7}}]`, `[{"target":"latest","machines":{"id-1":{}}}]`,
		`[{"phase":"installed","target":"1.13.4","machines":{"id-1":{}}}]`,
	} {
		api, other := live(t)
		objects := other.CoreV1().ConfigMaps(kubeapi.Namespace)

		if _, err := api.WriteJournal(t.Context(), cluster.Journal{}.WithConfirmed("id-1", entry(cluster.PhaseInstalled), nil)); err != nil {
			t.Fatal(err)
		}

		object, err := objects.Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		object.Annotations[confirmedAnnotation] = damaged

		if _, err := objects.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		if read, err := api.Journal(t.Context()); err != nil || len(read.Confirmed) > 0 {
			t.Errorf("%s: read %+v, %v", damaged, read, err)
		}

		forget(t, other)
	}
}

// TestTheJournalOfALargeClusterIsWritten: of too many machines, and of too long images, the
// oldest are left out.
func TestTheJournalOfALargeClusterIsWritten(t *testing.T) {
	for name, test := range map[string]struct {
		image string
		least int
	}{
		"many machines": {"factory.talos.dev/metal-installer/" + strings.Repeat("a", 64) + ":v1.13.4", 256},
		"long images":   {"registry.example.org/" + strings.Repeat("mirror/", 300) + "installer:v1.13.4", 50},
	} {
		api, other := live(t)

		var journal cluster.Journal

		for number := range 300 {
			one := entry(cluster.PhaseInstalled)
			one.Image, one.Written = test.image, one.Written.Add(time.Duration(number)*time.Minute)
			journal = journal.WithConfirmed(fmt.Sprintf("id-%03d", number), one, nil)
		}

		if _, err := api.WriteJournal(t.Context(), journal); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		read, err := api.Journal(t.Context())
		if err != nil || len(read.Confirmed) < test.least || len(read.Confirmed) > 256 {
			t.Errorf("%s: %d are remembered, %v", name, len(read.Confirmed), err)
		}

		if _, newest := read.Confirmed["id-299"]; !newest {
			t.Errorf("%s: the newest is forgotten", name)
		}

		if _, oldest := read.Confirmed["id-000"]; oldest {
			t.Errorf("%s: the oldest is remembered", name)
		}

		forget(t, other)
	}
}

// TestWhatIsConfirmedNoMoreIsGoneFromTheJournal: before anything is installed, the record of
// what the other boot slot held has to go, with the very write that records the intent.
func TestWhatIsConfirmedNoMoreIsGoneFromTheJournal(t *testing.T) {
	api, other := live(t)
	defer forget(t, other)

	journal := cluster.Journal{}.WithConfirmed("id-1", entry(cluster.PhaseInstalled), nil).WithConfirmed("id-2", entry(cluster.PhaseInstalled), nil)

	journal, err := api.WriteJournal(t.Context(), journal)
	if err != nil {
		t.Fatal(err)
	}

	for name, writer := range map[string]*kubeapi.Client{"who wrote it": api, "who has read it": another(t), "who knows nothing of it": another(t)} {
		if name == "who has read it" {
			if journal, err = writer.Journal(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		if journal, err = writer.WriteJournal(t.Context(), journal.With("id-1", entry(cluster.PhaseIntent))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		read, err := another(t).Journal(t.Context())
		if _, remembered := read.Confirmed["id-1"]; err != nil || remembered || len(read.Confirmed) != 1 || len(read.Entries) != 1 {
			t.Errorf("%s: read %+v, %v", name, read, err)
		}

		if journal, err = writer.WriteJournal(t.Context(), journal.WithConfirmed("id-1", entry(cluster.PhaseInstalled), nil)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if read, err = another(t).Journal(t.Context()); err != nil || len(read.Confirmed) != 2 || len(read.Entries) != 0 {
			t.Errorf("%s: read %+v, %v", name, read, err)
		}
	}
}

// another is another client of the real API server.
func another(t *testing.T) *kubeapi.Client {
	t.Helper()

	api, _ := live(t)

	return api
}
