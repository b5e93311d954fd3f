// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Internal addresses come first, each kind in the order in which the Node object
// has them: a cloud may name the external one first.
func TestInternalAddressesComeFirst(t *testing.T) {
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
