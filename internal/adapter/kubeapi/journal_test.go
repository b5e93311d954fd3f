// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// confirmedAnnotation is where the journal stores that an upgrade of the machine with
// the ID "id-1" was confirmed.
const confirmedAnnotation = "talosupgrade.vitistack.io/confirmed-2"

// TestJournal_ConfirmedRecordsAreNoKeys: earlier versions of the provider take every key that they do not know for a
// machine with unfinished work. The journal that they write has no confirmed records.
func TestJournal_ConfirmedRecordsAreNoKeys(t *testing.T) {
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

// TestJournal_UnreadableConfirmedRecordsAreIgnored: they do not block upgrades.
func TestJournal_UnreadableConfirmedRecordsAreIgnored(t *testing.T) {
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

// TestJournal_OfALargeClusterLeavesOutTheOldest: if there are too many machines or the images are too long, the
// oldest records are left out.
func TestJournal_OfALargeClusterLeavesOutTheOldest(t *testing.T) {
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

// TestJournal_ConfirmedRecordGoesWithTheNextIntent: before anything is installed, the record of the other boot slot
// must be removed, in the same write that records the intent.
func TestJournal_ConfirmedRecordGoesWithTheNextIntent(t *testing.T) {
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

// another returns another client of the real API server.
func another(t *testing.T) *kubeapi.Client {
	t.Helper()

	api, _ := live(t)

	return api
}

// kept returns a journal as a version of the provider has left it in clusters.
func kept(t *testing.T, file string) *corev1.ConfigMap {
	t.Helper()

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var object corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatal(err)
	}

	return &object
}

// keptJournal returns what each of these journals says, by the names of the nodes.
func keptJournal() (entries map[string]cluster.Entry, due cluster.ManifestsDue, taken cluster.EtcdSnapshot) {
	const run = "7N4Y4465RCFRNKYKADYD4TCIH2"

	at := func(minute, second int) time.Time { return time.Date(2026, 3, 1, 22, minute, second, 0, time.UTC) }
	to, from, schematic := version.MustParse("1.13.4"), version.MustParse("1.12.6"), "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

	entries = map[string]cluster.Entry{
		"worker-2": {
			Node: "worker-2", Phase: cluster.PhaseRollingBack, Attempt: 2, BootID: "5b1e8e4f-27b0-4a0c-9f6e-0d6d6f1c3f57",
			Image: "factory.talos.dev/metal-installer/" + schematic + ":v1.13.4", Target: to, Previous: from,
			PreviousSchematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba", Schematic: schematic,
			Told: true, PreviousEtcd: "3.6.4", Run: run, Cordoned: true, Written: at(14, 9),
		},
		"worker-3": {
			Node: "worker-3", Phase: cluster.PhaseIntent, Attempt: 1, BootID: "0f0b5a52-8c2c-4f5e-a1d5-4d8e8f5a7c11",
			Image: "ghcr.io/siderolabs/installer:v1.13.4", Target: to, Run: run, Written: at(15, 10),
		},
	}

	return entries, cluster.ManifestsDue{Run: run, Written: at(1, 2)}, cluster.EtcdSnapshot{
		Path: "/var/backups/etcd-20260301T220000Z.db", Size: 20971520, Taken: at(0, 0), Run: run, Closed: true,
		SHA256: "4f1c3d0e5b6a79880123456789abcdef0123456789abcdeffedcba9876543210",
		Target: cluster.Target{Talos: to, Kubernetes: version.MustParse("1.35.2"), InstallerImage: "ghcr.io/siderolabs/installer"},
	}
}

// TestJournal_AllFormatsAreReadAndTheNewestIsWritten: clusters hold journals of earlier versions, and a node may be
// armed.
func TestJournal_AllFormatsAreReadAndTheNewestIsWritten(t *testing.T) {
	newest := kept(t, "testdata/journal-format-2.yaml")
	entries, due, taken := keptJournal()

	nodes := []cluster.Node{
		{Name: "worker-2", Kube: &cluster.KubeNode{MachineID: "be871ac0d0dd31fa4caca753b0f3f1b2", SystemUUID: "5544971a-a37e-4171-aaf8-0399be97b390"}},
		{Name: "worker-3", Kube: &cluster.KubeNode{MachineID: "9f86d081884c7d659a2feaa0c55ad015", SystemUUID: "03000200-0400-0500-0006-000700080009"}},
		{Name: "worker-4", Kube: &cluster.KubeNode{MachineID: "60303ae22b998861bce3b28f33eec1be", SystemUUID: "03000200-0400-0500-0006-000700080009"}},
	}

	for _, file := range []string{"testdata/journal-format-1.yaml", "testdata/journal-format-2.yaml"} {
		api, other := live(t)

		if _, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), kept(t, file), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		read, err := api.Journal(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		for key, entry := range read.Entries {
			if entry != entries[entry.Node] {
				t.Errorf("%s: %s is %+v, want %+v", file, key, entry, entries[entry.Node])
			}
		}

		if len(read.Entries) != len(entries) || read.Manifests == nil || *read.Manifests != due || read.Snapshot == nil || *read.Snapshot != taken {
			t.Errorf("%s: read %+v", file, read)
		}

		if _, err := api.WriteJournal(t.Context(), read.Keyed(nodes)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
		if err != nil || !maps.Equal(object.Data, newest.Data) {
			t.Errorf("%s is written as %q, %v; want %q: later versions read it", file, object.Data, err, newest.Data)
		}

		forget(t, other)
	}
}

// TestJournal_OfEachReleaseIsReadWhole reads what each release wrote. The newest one has every field that a journal can
// have, and this build writes the same.
func TestJournal_OfEachReleaseIsReadWhole(t *testing.T) {
	releases := []string{"0.1.0"}

	for _, release := range releases {
		api, other := live(t)
		stored := kept(t, "testdata/journal-"+release+".yaml")

		if _, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), stored, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		read, err := api.Journal(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", release, err)
		}

		forget(t, other)

		if len(read.Entries) != 3 || len(read.Confirmed) != 1 || read.Holder == "" || read.Manifests == nil || read.Snapshot == nil {
			t.Fatalf("%s: read %+v", release, read)
		}

		if release != releases[len(releases)-1] {
			continue
		}

		for i := range reflect.TypeFor[cluster.Entry]().NumField() {
			filled := func(entry cluster.Entry) bool { return !reflect.ValueOf(entry).Field(i).IsZero() }
			if entries := append(slices.Collect(maps.Values(read.Entries)), slices.Collect(maps.Values(read.Confirmed))...); !slices.ContainsFunc(entries, filled) {
				t.Errorf("%s: no entry has %s: add the journal of this release to testdata", release, reflect.TypeFor[cluster.Entry]().Field(i).Name)
			}
		}

		read.ResourceVersion = ""
		if _, err := api.WriteJournal(t.Context(), read); err != nil {
			t.Fatalf("%s: %v", release, err)
		}

		object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
		if err != nil || !maps.Equal(object.Data, stored.Data) || !maps.Equal(object.Annotations, stored.Annotations) {
			t.Errorf("%s is written as %q with %q, %v; want %q with %q", release, object.Data, object.Annotations, err, stored.Data, stored.Annotations)
		}

		forget(t, other)
	}
}

// TestJournal_UnknownFormatIsRefusedAndKept: in a later version, a key may mean another machine.
func TestJournal_UnknownFormatIsRefusedAndKept(t *testing.T) {
	for _, format := range []string{"3", "0", "two", ""} {
		api, other := live(t)

		object := kept(t, "testdata/journal-format-2.yaml")
		object.Data["format"] = format

		if _, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		_, err := api.Journal(t.Context())
		if !errors.Is(err, kubeapi.ErrJournal) {
			t.Fatalf("format %q: %v", format, err)
		}

		for _, part := range []string{`has the format "` + format + `"`, "knows formats 1 to 2", "version of the provider that wrote it, or with a newer one"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("format %q: %v does not say %q", format, err, part)
			}
		}

		if kept, err := api.Forget(t.Context(), ""); err != nil || len(kept) != 1 || !strings.Contains(kept[0], "the format") {
			t.Errorf("format %q: forgotten, keeping %q, %v", format, kept, err)
		}

		forget(t, other)
	}
}

// TestJournal_KeepsWhatARollbackNeeds, in every phase, under names that other
// versions read.
func TestJournal_KeepsWhatARollbackNeeds(t *testing.T) {
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

// TestJournal_EntryOfAnEarlierVersionKnowsNoEtcd: the entry is read as it was written.
func TestJournal_EntryOfAnEarlierVersionKnowsNoEtcd(t *testing.T) {
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

// TestJournal_RefusesAnUnknownPhase: the error names the phase and its entry, because its meaning for the node is
// not known here.
func TestJournal_RefusesAnUnknownPhase(t *testing.T) {
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

// TestJournal_RollbackUnderWayIsNotForgotten: only a rollback that has ended is.
func TestJournal_RollbackUnderWayIsNotForgotten(t *testing.T) {
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

// TestJournal_WriteCostsWhatChanged: the writes of one upgrade take the same bytes whether few or 99 other nodes are
// being upgraded and as many as possible are remembered.
func TestJournal_WriteCostsWhatChanged(t *testing.T) {
	_, other := live(t)
	few, fewSize := upgradeTraffic(t, other, 2, 20)

	forget(t, other)

	many, manySize := upgradeTraffic(t, other, 98, 255)

	forget(t, other)

	t.Logf("2 others: %d bytes for the writes of an upgrade, %d in the object; 98 others: %d, %d", few, fewSize, many, manySize)

	if many > few*3/2 {
		t.Errorf("the writes of an upgrade beside 98 others take %d bytes, beside 2 others %d", many, few)
	}

	// All annotations of an object may have 256 KiB, and etcd keeps each version.
	if most := 128 << 10; manySize > most {
		t.Errorf("the journal has %d bytes, want %d at most", manySize, most)
	}
}

// upgradeTraffic returns the bytes that the writes of one upgrade take, with their answers, while others are under
// way and some are confirmed; and the size of the object at the end.
func upgradeTraffic(t *testing.T, other kubernetes.Interface, others, confirmed int) (traffic int64, size int) {
	t.Helper()

	var total atomic.Int64

	api := countedClient(t, &total)

	var journal cluster.Journal

	for number := range confirmed {
		journal = journal.WithConfirmed(machineID(1000+number), upgradeOf(1000+number, ""), nil)
	}

	for number := range others {
		journal = journal.With(machineID(number), upgradeOf(number, cluster.PhaseInstalled))
	}

	journal, err := api.WriteJournal(t.Context(), journal)
	if err != nil {
		t.Fatal(err)
	}

	before := total.Load()
	key := machineID(500)

	for _, phase := range []cluster.Phase{cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, ""} {
		one := upgradeOf(500, phase)
		if phase != "" {
			journal = journal.With(key, one)
		} else {
			journal = journal.WithConfirmed(key, one, nil)
		}

		if journal, err = api.WriteJournal(t.Context(), journal); err != nil {
			t.Fatal(err)
		}
	}

	traffic = total.Load() - before

	read, err := api.Journal(t.Context())
	if err != nil || !maps.Equal(read.Entries, journal.Entries) || !maps.Equal(read.Confirmed, journal.Confirmed) || read.ResourceVersion != journal.ResourceVersion {
		t.Errorf("wrote %d entries and %d confirmed ones, read %d and %d, %v",
			len(journal.Entries), len(journal.Confirmed), len(read.Entries), len(read.Confirmed), err)
	}

	object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return traffic, object.Size()
}

// countedClient returns a client of the real API server that adds up what goes over its
// connections, in bytes.
func countedClient(t *testing.T, total *atomic.Int64) *kubeapi.Client {
	t.Helper()

	kubeconfig, err := os.ReadFile(suite.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	client, err := kubeapi.New(kubeconfig, "", kubeapi.Options{
		UserAgent: "terraform-provider-talosupgrade/test",
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, network, address)

			return &countedConnection{connection, total}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	return client
}

type countedConnection struct {
	net.Conn

	total *atomic.Int64
}

func (c *countedConnection) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.total.Add(int64(n))

	return n, err
}

func (c *countedConnection) Write(from []byte) (int, error) {
	n, err := c.Conn.Write(from)
	c.total.Add(int64(n))

	return n, err
}

// machineID returns a machine ID as long as real ones.
func machineID(number int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(number)))

	return hex.EncodeToString(sum[:16])
}

// upgradeOf returns an entry as long as those of real upgrades.
func upgradeOf(number int, phase cluster.Phase) cluster.Entry {
	one := entry(phase)
	one.Node = fmt.Sprintf("worker-%04d.example.org", number)
	one.Image = "factory.talos.dev/metal-installer/" + strings.Repeat("a", 64) + ":v1.13.4"
	one.Schematic, one.PreviousSchematic = strings.Repeat("a", 64), strings.Repeat("b", 64)
	one.Platform, one.PreviousEtcd, one.Run = "metal", "3.6.5", "run-0123456789abcdef"
	one.BootID, one.Attempt = fmt.Sprintf("2b8f1a64-0000-4000-8000-%012x", number), 1
	one.Written = one.Written.Add(time.Duration(number) * time.Second)

	if phase == "" {
		one.Attempt, one.Cordoned = 0, false
		one.ConfirmedBootID = fmt.Sprintf("3c9f2b75-0000-4000-8000-%012x", number)
	}

	return one
}

func TestJournal_RemembersTheSnapshotOfEtcd(t *testing.T) {
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

// stillUnderWay is the record for a roll to each node's own image that has not ended: as it was stored before the
// record named either, and as it still is.
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

// TestJournal_DamagedRecordOfASnapshotIsNamed: nor does it count as unfinished work.
func TestJournal_DamagedRecordOfASnapshotIsNamed(t *testing.T) {
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

func TestLease_HasOneWriter(t *testing.T) {
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

func TestJournal_KeepsEveryFieldOfAnEntry(t *testing.T) {
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

func TestJournal_RemembersASyncThatIsDue(t *testing.T) {
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

func TestJournal_DamagedIsNotTakenForEmpty(t *testing.T) {
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

func TestForget_RemovesWhatIsOursAndFinished(t *testing.T) {
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

func TestForget_LeavesARunningUpgradeAlone(t *testing.T) {
	holder, _ := live(t)

	lease, err := holder.WriteLease(t.Context(), cluster.Lease{Holder: "run-9", Renewed: time.Now(), Duration: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := holder.WriteJournal(t.Context(), cluster.Journal{}); err != nil {
		t.Fatal(err)
	}

	slept := time.Duration(0)

	// While one client looks, the other renews, as it does every ten seconds.
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

// TestForget_ADeadHolderIsNotKeptByAnotherWrite: an annotation is no renewal, and a suspension that somebody writes
// while the lease is watched counts.
func TestForget_ADeadHolderIsNotKeptByAnotherWrite(t *testing.T) {
	for name, test := range map[string]struct{ key, kept string }{
		"an annotation": {"example.com/note", ""},
		"a suspension":  {protocol.KeySuspend, "upgrades of the cluster are suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			holder, _ := live(t)

			if _, err := holder.WriteLease(t.Context(), cluster.Lease{Holder: "run-9", Renewed: time.Now(), Duration: 30 * time.Second}); err != nil {
				t.Fatal(err)
			}

			slept := time.Duration(0)
			patch := []byte(`{"metadata":{"annotations":{"` + test.key + `":"storage is degraded"}}}`)

			var (
				api   *kubeapi.Client
				other kubernetes.Interface
			)

			api, other = liveWith(t, func(ctx context.Context, duration time.Duration) error {
				if slept += duration; slept == 10*time.Second {
					_, err := other.CoordinationV1().Leases(kubeapi.Namespace).Patch(ctx, kubeapi.LeaseName, types.MergePatchType, patch, metav1.PatchOptions{})

					return err
				}

				return ctx.Err()
			})
			defer forget(t, other)

			kept, err := api.Forget(t.Context(), "")
			if err != nil || (len(kept) > 0) != (test.kept != "") || !strings.Contains(strings.Join(kept, "\n"), test.kept) {
				t.Errorf("kept %q, %v, want %q", kept, err, test.kept)
			}
		})
	}
}

func TestForget_LeavesWhatSomebodyElseUses(t *testing.T) {
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
