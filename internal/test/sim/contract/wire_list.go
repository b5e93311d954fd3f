// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func objectsHaveIdentity(t *testing.T, f WireFixture) {
	f.Pod(t, "identified", worker(t, f, 0))

	first := create(t, f)
	f.DropJournal(t)

	second := create(t, f)
	if first.UID == second.UID || first.ResourceVersion == second.ResourceVersion {
		t.Errorf("created again, it is the same: %s, version %s", second.UID, second.ResourceVersion)
	}

	nodes, err := f.Wire().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	pods, err := f.Wire().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	objects := []metav1.ObjectMeta{second.ObjectMeta}
	for i := range nodes.Items {
		objects = append(objects, nodes.Items[i].ObjectMeta)
	}

	for i := range pods.Items {
		objects = append(objects, pods.Items[i].ObjectMeta)
	}

	uids := map[types.UID]string{}

	for _, one := range objects {
		if one.UID == "" || one.ResourceVersion == "" || one.CreationTimestamp.IsZero() {
			t.Errorf("%s has UID %q, version %q and was created at %s", one.Name, one.UID, one.ResourceVersion, one.CreationTimestamp)
		}

		if other, taken := uids[one.UID]; taken {
			t.Errorf("%s and %s have the same UID", one.Name, other)
		}

		uids[one.UID] = one.Name
	}

	if nodes.ResourceVersion == "" {
		t.Error("the list has no version")
	}
}

func selectorsAreHonoured(t *testing.T, f WireFixture) {
	here, there := worker(t, f, 0), worker(t, f, 1)
	pod, other := f.Pod(t, "selected", here), f.Pod(t, "selected", there)
	pods := f.Wire().CoreV1().Pods("")

	for what, one := range map[string]struct {
		options metav1.ListOptions
		wanted  []string
	}{
		"a node":            {metav1.ListOptions{FieldSelector: "spec.nodeName=" + here, LabelSelector: "app=selected"}, []string{pod.Name}},
		"any node but one":  {metav1.ListOptions{FieldSelector: "spec.nodeName!=" + here, LabelSelector: "app in (selected)"}, []string{other.Name}},
		"a name":            {metav1.ListOptions{FieldSelector: "metadata.name=" + other.Name}, []string{other.Name}},
		"a node and a name": {metav1.ListOptions{FieldSelector: "spec.nodeName=" + here + ",metadata.name=" + other.Name}, nil},
		"a phase":           {metav1.ListOptions{FieldSelector: "status.phase=Pending", LabelSelector: "app=selected"}, nil},
		"a label":           {metav1.ListOptions{LabelSelector: "app=selected"}, []string{pod.Name, other.Name}},
		"no such label":     {metav1.ListOptions{LabelSelector: "app=selected,!app"}, nil},
	} {
		list, err := pods.List(t.Context(), one.options)
		if err != nil {
			t.Errorf("%s: %v", what, err)

			continue
		}

		var found []string
		for i := range list.Items {
			found = append(found, list.Items[i].Name)
		}

		slices.Sort(found)
		slices.Sort(one.wanted)

		if !slices.Equal(found, one.wanted) {
			t.Errorf("%s: found %v, want %v", what, found, one.wanted)
		}
	}

	_, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.image=a"})
	refused(t, "a field that nobody can ask for", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)

	_, err = f.Wire().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=a"})
	refused(t, "a field of another kind", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)

	_, err = pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app in selected"})
	refused(t, "a selector that makes no sense", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

func pagesAddUp(t *testing.T, f WireFixture) {
	nodes := f.Wire().CoreV1().Nodes()

	whole, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	var (
		found, wanted []string
		options       = metav1.ListOptions{Limit: 2}
		version       string
	)

	for i := range whole.Items {
		wanted = append(wanted, whole.Items[i].Name)
	}

	for pages := 1; ; pages++ {
		page, err := nodes.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}

		if len(page.Items) > 2 || version != "" && page.ResourceVersion != version || pages > len(wanted) {
			t.Fatalf("page %d has %d nodes of version %s, the first one is of %s", pages, len(page.Items), page.ResourceVersion, version)
		}

		version = page.ResourceVersion

		for i := range page.Items {
			found = append(found, page.Items[i].Name)
		}

		left := page.RemainingItemCount
		if want := int64(len(wanted) - len(found)); (left == nil) != (want == 0) || left != nil && *left != want {
			t.Errorf("after page %d %v are left, want %d", pages, left, want)
		}

		if page.Continue == "" {
			break
		}

		options.Continue = page.Continue
	}

	if !slices.Equal(found, wanted) {
		t.Errorf("the pages have %v, the list %v", found, wanted)
	}

	_, err = nodes.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: "nonsense"})
	refused(t, "a token that makes no sense", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
}
