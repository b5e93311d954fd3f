// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestLostReplyComesAfterTheEffect(t *testing.T) {
	s := need(t)
	provider, person := s.as(t, providerAgent), s.as(t, "test")

	s.world.change("", func(w *fakeWorld, _ *Machine) { w.lost = "worker-1" })

	cordon := func(node string) error {
		_, err := provider.CoreV1().Nodes().
			Patch(t.Context(), node, types.MergePatchType, []byte(cordonPatch), metav1.PatchOptions{})

		return err
	}

	if err := cordon("worker-0"); err != nil {
		t.Error("the reply about another node:", err)
	}

	if err := cordon("worker-1"); err == nil {
		t.Error("the reply about worker-1 arrived")
	}

	if !getNode(t, person, "worker-1").Spec.Unschedulable {
		t.Error("the request had no effect")
	}

	if err := cordon("worker-1"); err != nil {
		t.Error("the reply after the lost one:", err)
	}

	for _, node := range []string{"worker-0", "worker-1"} {
		patchNode(t, person, node, uncordonPatch, metav1.PatchOptions{})
	}
}
