// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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

// watchesBeginWithWhatThereIs has a watch send the objects first.
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
