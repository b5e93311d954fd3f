// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestReply_LostOneComesAfterTheEffect(t *testing.T) {
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

// doubtfulWorld answers the first question about replies at risk late, and with false.
type doubtfulWorld struct {
	World

	questions     atomic.Int32
	asked, answer chan struct{}
}

func (w *doubtfulWorld) RepliesAtRisk() bool {
	if w.questions.Add(1) > 1 {
		return true
	}

	close(w.asked)
	<-w.answer

	return false
}

// TestReply_NewestAssessmentStands: if the world changes from two goroutines at once, an older assessment does not
// replace the newer one.
func TestReply_NewestAssessmentStands(t *testing.T) {
	world := &doubtfulWorld{asked: make(chan struct{}), answer: make(chan struct{})}
	s := &Server{options: Options{World: world}, auditor: &auditor{ledger: newLedger(nil)}}

	var both sync.WaitGroup

	both.Go(s.assess)
	<-world.asked

	second := make(chan struct{})

	both.Go(func() {
		defer close(second)

		s.assess()
	})

	// The second assessment may overtake the first, or has to wait for it.
	select {
	case <-second:
	case <-time.After(50 * time.Millisecond):
	}

	close(world.answer)
	both.Wait()

	if !s.atRisk.Load() {
		t.Error("what the world said first stands")
	}
}
