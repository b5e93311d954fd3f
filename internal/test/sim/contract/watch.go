// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// changesAreWatched watches the nodes from the version of a list.
func changesAreWatched(t *testing.T, f WireFixture) {
	nodes := f.Wire().CoreV1().Nodes()

	list, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	seconds := int64(3)

	events, err := nodes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	changed := list.Items[len(list.Items)-1].Name
	f.CordonAsPerson(t, changed, true)

	var told []bool

	last := objectVersion(t, list.ResourceVersion)

	for event := range events.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if !ok || objectVersion(t, node.ResourceVersion) < last || objectVersion(t, node.ResourceVersion) == last && event.Type != watch.Bookmark {
			t.Fatalf("an event %s after version %d: %+v", event.Type, last, event.Object)
		}

		last = objectVersion(t, node.ResourceVersion)

		if node.Name != changed || event.Type != watch.Modified || len(told)%2 == 0 != node.Spec.Unschedulable {
			continue
		}

		if told = append(told, node.Spec.Unschedulable); len(told) == 1 {
			f.CordonAsPerson(t, changed, false)
		}
	}

	if !slices.Equal(told, []bool{true, false}) {
		t.Errorf("the watch, which has ended as it was to, told of the cordons %v, want one and its end", told)
	}
}

// selectedChangesAreWatched watches some ConfigMaps: one that becomes selected is added for the watch, and one that
// is not selected any more is deleted.
func selectedChangesAreWatched(t *testing.T, f WireFixture) {
	maps := f.Wire().CoreV1().ConfigMaps(namespace)

	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	seconds := int64(60)
	options := metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds}

	byName, byLabel := options, options
	byName.FieldSelector, byLabel.LabelSelector = "metadata.name="+publishedName, "step in (one,two)"

	for _, step := range []string{"one", "two", "three", ""} {
		for _, name := range []string{journalName, publishedName} {
			switch step {
			case "one":
				wanted := configMap(name, nil)
				wanted.Labels = map[string]string{"step": step}
				_, err = maps.Create(t.Context(), wanted, metav1.CreateOptions{})
			case "":
				err = maps.Delete(t.Context(), name, metav1.DeleteOptions{})
			default:
				_, err = maps.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"step":"`+step+`"}}}`), metav1.PatchOptions{})
			}

			if err != nil {
				t.Fatal(err)
			}
		}
	}

	for what, one := range map[string]struct {
		options metav1.ListOptions
		want    []string
	}{
		"by name": {byName, []string{
			"ADDED talosupgrade one", "MODIFIED talosupgrade two", "MODIFIED talosupgrade three", "DELETED talosupgrade three",
		}},
		"by label": {byLabel, []string{
			"ADDED talosupgrade-journal one", "ADDED talosupgrade one", "MODIFIED talosupgrade-journal two", "MODIFIED talosupgrade two",
			"DELETED talosupgrade-journal two", "DELETED talosupgrade two",
		}},
	} {
		if told := watched(t, f, one.options, len(one.want)); !slices.Equal(told, one.want) {
			t.Errorf("%s: %q, want %q", what, told, one.want)
		}
	}

	byField := options
	byField.FieldSelector = "spec.nodeName=a"
	_, err = maps.Watch(t.Context(), byField)
	refused(t, "a watch by a field of another kind", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

// watched returns the first events of a watch of ConfigMaps, each with a later version than the one before.
func watched(t *testing.T, f WireFixture, options metav1.ListOptions, count int) (told []string) {
	t.Helper()

	events, err := f.Wire().CoreV1().ConfigMaps(namespace).Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	last := objectVersion(t, options.ResourceVersion)

	for event := range events.ResultChan() {
		one, ok := event.Object.(*corev1.ConfigMap)
		if !ok || objectVersion(t, one.ResourceVersion) <= last {
			t.Fatalf("an event %s after version %d: %+v", event.Type, last, event.Object)
		}

		last = objectVersion(t, one.ResourceVersion)

		if told = append(told, string(event.Type)+" "+one.Name+" "+one.Labels["step"]); len(told) == count {
			break
		}
	}

	return told
}

// watchesBeginWithWhatThereIs makes a watch send the existing objects first.
func watchesBeginWithWhatThereIs(t *testing.T, f WireFixture) {
	nodes := f.Wire().CoreV1().Nodes()
	yes, seconds := true, int64(60)

	events, err := nodes.Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	var names []string

	for event := range events.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if !ok {
			t.Fatalf("an event %s: %+v", event.Type, event.Object)
		}

		if event.Type == watch.Bookmark && node.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			break
		}

		if event.Type == watch.Added {
			names = append(names, node.Name)
		}
	}

	slices.Sort(names)

	if want := machineNames(f); !slices.Equal(names, want) {
		t.Errorf("a watch began with %v, want %v", names, want)
	}
}

func machineNames(f Fixture) []string {
	var names []string
	for _, machine := range f.Machines() {
		names = append(names, machine.Name)
	}

	slices.Sort(names)

	return names
}

func objectVersion(t *testing.T, text string) int64 {
	t.Helper()

	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return number
}

// followedNodesAreNew checks that each observation of followed nodes contains what was done before.
func followedNodesAreNew(t *testing.T, f Fixture) {
	stop := f.API().FollowNodes(t.Context())
	defer stop()

	listed, err := f.API().Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	cordoned := listed[len(listed)-1].Name
	defer f.CordonAsPerson(t, cordoned, false)

	const often = 20

	var seen [often]*cluster.KubeNode

	for i := range often {
		f.CordonAsPerson(t, cordoned, i%2 == 0)

		now, err := f.API().NodesNow(t.Context(), listed[i%len(listed)].Name)
		if err != nil {
			t.Fatal(err)
		}

		at := slices.IndexFunc(now, func(node cluster.KubeNode) bool { return node.Name == cordoned })
		if at < 0 || now[at].Unschedulable != (i%2 == 0) {
			t.Fatalf("look %d does not say what was done to %s before it: %+v", i, cordoned, now)
		}

		seen[i] = &now[at]
	}

	for i, node := range seen {
		if node.Name != cordoned || node.Unschedulable != (i%2 == 0) {
			t.Errorf("what look %d returned has changed since: %+v", i, *node)
		}
	}

	if now, err := f.API().NodesNow(t.Context(), "nobody"); err != nil || len(now) != len(listed) {
		t.Errorf("a claim onto a node that does not exist: %d nodes, %v", len(now), err)
	}
}

// What an observation of followed nodes writes, and as which manager. Both are written down here a second time on
// purpose.
const (
	claimAnnotation = "talosupgrade.vitistack.io/claim"
	claimManager    = "talosupgrade-claim"
)

// claimsAreWritten checks that an observation of followed nodes costs one write to the named node, which undoes
// nothing and is not mistaken for a write of somebody else, and no list.
func claimsAreWritten(t *testing.T, f WireFixture) {
	nodes := f.Wire().CoreV1().Nodes()

	listed, err := f.API().Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	claimed := listed[len(listed)-1].Name
	claim := func() string {
		node, err := nodes.Get(t.Context(), claimed, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return node.Annotations[claimAnnotation]
	}

	stood := claim()

	if _, err := f.API().NodesNow(t.Context(), claimed); err != nil || claim() != stood {
		t.Errorf("nodes that nobody follows: %v, and the claim %q, want %q", err, claim(), stood)
	}

	stop := f.API().FollowNodes(t.Context())
	defer stop()

	f.Eventually(t, "a claim", func() (bool, error) {
		_, err := f.API().NodesNow(t.Context(), claimed)

		return claim() != stood, err
	})

	before := claim()

	if now, err := f.API().NodesNow(t.Context(), claimed); err != nil || claim() == before || !slices.Equal(namesOf(now), namesOf(listed)) {
		t.Errorf("a second look: %v, %v, and the claim %q, want another one", namesOf(now), err, claim())
	}

	if _, err := f.API().Cordon(t.Context(), claimed, "run-1"); err != nil {
		t.Fatal(err)
	}

	now, err := f.API().NodesNow(t.Context(), claimed)

	at := slices.IndexFunc(now, func(node cluster.KubeNode) bool { return node.Name == claimed })
	if err != nil || at < 0 || now[at].CordonedBy != "run-1" || now[at].LastWriter == claimManager {
		t.Errorf("a claim after a cordon of ours: %v, %+v", err, now)
	}

	if err := f.API().Uncordon(t.Context(), claimed); err != nil || claim() != "" {
		t.Errorf("an uncordon: %v, and the claim %q is left", err, claim())
	}
}

// forget forgets a cluster and compares what is kept: one reason each, which contains these words.
func forget(t *testing.T, f Fixture, id string, kept ...string) {
	t.Helper()

	reasons, err := f.API().Forget(t.Context(), id)
	if err != nil || len(reasons) != len(kept) {
		t.Errorf("kept %q, %v, want %q", reasons, err, kept)
	}

	for i := range min(len(kept), len(reasons)) {
		if !strings.Contains(reasons[i], kept[i]) {
			t.Errorf("kept %q, want %q", reasons[i], kept[i])
		}
	}
}

// expectRecords checks whether there is a lease and a journal.
func expectRecords(t *testing.T, f Fixture, lease, journal bool) {
	t.Helper()

	if found := readLease(t, f).ResourceVersion != ""; found != lease {
		t.Errorf("there is a lease: %t, want %t", found, lease)
	}

	if found := readJournal(t, f).ResourceVersion != ""; found != journal {
		t.Errorf("there is a journal: %t, want %t", found, journal)
	}
}

func forgetNothing(t *testing.T, f Fixture) {
	forget(t, f, f.ClusterID())
	expectRecords(t, f, false, false)
}

func forgetFinished(t *testing.T, f Fixture) {
	// Its holder has died: nobody renews it.
	writeLease(t, f, wholeLease())
	writeJournal(t, f, cluster.Journal{Holder: "run-1"}.With("uuid-1", wholeEntry(cluster.PhaseFallback)).
		With("uuid-2", wholeEntry(cluster.PhaseRolledBack)).WithSnapshot(wholeSnapshot()))

	forget(t, f, f.ClusterID())
	expectRecords(t, f, false, false)
}

func forgetUnfinished(t *testing.T, f Fixture) {
	for _, phase := range []cluster.Phase{cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseRollingBack} {
		writeLease(t, f, cluster.Lease{})

		entry := wholeEntry(phase)
		entry.Departed = false

		journal := cluster.Journal{}.With("uuid-1", entry)
		writeJournal(t, f, journal)

		forget(t, f, f.ClusterID(), "the upgrade of node worker-0")
		expectRecords(t, f, false, true)
		expectJournal(t, f, journal)

		f.DropJournal(t)
	}
}

func forgetManifests(t *testing.T, f Fixture) {
	writeJournal(t, f, cluster.Journal{}.WithManifests(&cluster.ManifestsDue{Run: "run-7", Written: moment(0)}))

	forget(t, f, f.ClusterID(), "the bootstrap manifests have not been synced since the roll of run run-7")
	expectRecords(t, f, false, true)
}

func forgetForeign(t *testing.T, f Fixture) {
	writeLease(t, f, cluster.Lease{})
	writeJournal(t, f, cluster.Journal{})

	kept, err := f.API().Forget(t.Context(), "another-cluster")
	if err != nil || len(kept) == 0 || !strings.Contains(kept[0], "belongs to cluster "+f.ClusterID()) {
		t.Errorf("kept %q, %v, want what belongs to cluster %s", kept, err, f.ClusterID())
	}

	expectRecords(t, f, true, true)
}
