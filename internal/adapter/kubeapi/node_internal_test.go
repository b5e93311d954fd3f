// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Internal addresses come first, each kind in the order in which the Node object
// has them: a cloud may name the external one first.
func TestNode_InternalAddressesComeFirst(t *testing.T) {
	t.Parallel()

	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "203.0.113.5"},
		{Type: corev1.NodeHostName, Address: "worker-0"},
		{Type: corev1.NodeInternalIP, Address: "10.5.0.5"},
		{Type: corev1.NodeExternalDNS, Address: "worker-0.example.com"},
		{Type: corev1.NodeInternalIP, Address: "fd05::5"},
	}}}

	if got, want := kubeNode(node).Addresses, []string{"10.5.0.5", "fd05::5", "203.0.113.5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNode_TellsWhoWroteToItSinceWeDid is about what managedFields show: who added or changed something, but not who
// only removed something.
func TestNode_TellsWhoWroteToItSinceWeDid(t *testing.T) {
	t.Parallel()

	const own = "terraform-provider-talosupgrade"

	entry := func(manager, subresource string, second int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(time.Unix(int64(second), 0))

		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &at}
	}

	for name, given := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   string
	}{
		"nothing is remembered": {},
		"we never wrote":        {fields: []metav1.ManagedFieldsEntry{entry("kubectl-edit", "", 30)}},
		"nobody since":          {fields: []metav1.ManagedFieldsEntry{entry("kubectl-edit", "", 10), entry(own, "", 20)}},
		"without a time":        {fields: []metav1.ManagedFieldsEntry{entry(own, "", 20), {Manager: "kubectl-edit"}}},
		"the newest since":      {fields: []metav1.ManagedFieldsEntry{entry(own, "", 20), entry("karpenter", "", 30), entry("kubectl-edit", "", 25)}, want: "karpenter"},
		"in the same second":    {fields: []metav1.ManagedFieldsEntry{entry(own, "", 20), entry("kubectl-edit", "", 20)}, want: "kubectl-edit"},
		"those who always do": {fields: []metav1.ManagedFieldsEntry{
			entry(own, "", 20), entry("kubelet", "", 30), entry("kube-controller-manager", "", 31), entry("node-problem-detector", "status", 32),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := lastWriter(given.fields, own); got != given.want {
				t.Errorf("got %q, want %q", got, given.want)
			}
		})
	}
}
