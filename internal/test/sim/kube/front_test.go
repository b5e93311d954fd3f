// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// echo is a server that returns what it is sent.
func echo(t *testing.T) string {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}

			go func() {
				_, _ = io.Copy(connection, connection)
				_ = connection.Close()
			}()
		}
	}()

	return listener.Addr().String()
}

// converse opens a connection and makes sure that it works.
func converse(t *testing.T, port int) net.Conn {
	t.Helper()

	connection, err := net.Dial("tcp", hostPort(port))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = connection.Close() })

	if err := connection.SetDeadline(time.Now().Add(eventually)); err != nil {
		t.Fatal(err)
	}

	if _, err := connection.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}

	if _, err := io.ReadFull(connection, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	return connection
}

func TestFront_ClosedGateRefusesAndCuts(t *testing.T) {
	g, err := newGate(echo(t), "cp-0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.stop()

	connection := converse(t, g.port)

	g.close()

	if _, err := connection.Read(make([]byte, 1)); err == nil {
		t.Error("the live connection survived")
	}

	if _, err := net.Dial("tcp", hostPort(g.port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing a closed gate: %v, want connection refused", err)
	}

	if err := g.open("cp-0"); err != nil {
		t.Fatal(err)
	}

	converse(t, g.port)
}

func TestFront_SharedGateCutsConnectionsOfItsFormerOwnerOnly(t *testing.T) {
	g, err := newGate(echo(t), "cp-0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.stop()

	old := converse(t, g.port)

	if err := g.open("cp-1"); err != nil {
		t.Fatal(err)
	}

	if _, err := old.Read(make([]byte, 1)); err == nil {
		t.Error("a connection through the former owner survived")
	}

	current := converse(t, g.port)

	if err := g.open("cp-1"); err != nil {
		t.Fatal(err)
	}

	if _, err := current.Write([]byte("x")); err != nil {
		t.Error("a connection through the present owner was cut:", err)
	}
}

func TestFront_StoppedGateLeavesNothingRunning(t *testing.T) {
	g, err := newGate(echo(t), "", nil)
	if err != nil {
		t.Fatal(err)
	}

	converse(t, g.port)

	stopped := make(chan struct{})

	go func() { g.stop(); close(stopped) }()

	select {
	case <-stopped:
	case <-time.After(eventually):
		t.Fatal("the gate did not stop")
	}
}

func reachable(t *testing.T, client kubernetes.Interface) bool {
	t.Helper()

	_, err := client.CoreV1().Namespaces().Get(t.Context(), namespaceSystem, metav1.GetOptions{})

	return err == nil
}

func TestFront_EndpointsFollowTheControlPlanes(t *testing.T) {
	s := need(t)

	own, err := s.server.KubeconfigFor("cp-0")
	if err != nil {
		t.Fatal(err)
	}

	through, shared := newTestClient(t, own, "test"), s.as(t, "test")

	reach := func(what string, client kubernetes.Interface) {
		t.Helper()
		until(t, what, func() bool { return reachable(t, client) })
	}

	reach("cp-0 to answer", through)

	s.world.takeDown("cp-0")
	t.Cleanup(func() { s.world.bringUp("cp-0", "cp-0-boot-0", "1.12.6") })

	if reachable(t, through) {
		t.Error("cp-0 answers while it is down")
	}

	reach("the shared address to answer with cp-0 down", shared)

	s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = true })
	t.Cleanup(func() { s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = false }) })

	if reachable(t, shared) {
		t.Error("the shared address answers without a quorum of etcd")
	}

	s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = false })
	s.world.bringUp("cp-0", "cp-0-boot-0", "1.12.6")

	reach("cp-0 to answer again", through)
	reach("the shared address to answer again", shared)
}

// TestFront_LossCutsBeforeAnotherAnswerPasses: when one answer tells that a reply has to be lost,
// the one that is read next may be that reply.
func TestFront_LossCutsBeforeAnotherAnswerPasses(t *testing.T) {
	var (
		judged sync.Mutex
		losing atomic.Bool
	)

	g, err := newGate(echo(t), "cp-0", func(cut func()) bool {
		judged.Lock()
		defer judged.Unlock()

		if !losing.CompareAndSwap(true, false) {
			return false
		}

		cut()

		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.stop()

	for range 50 {
		connections := []net.Conn{converse(t, g.port), converse(t, g.port)}

		losing.Store(true)

		var (
			both    sync.WaitGroup
			arrived atomic.Int32
		)

		for _, connection := range connections {
			both.Go(func() {
				_, _ = connection.Write([]byte("x"))

				if _, err := io.ReadFull(connection, make([]byte, 1)); err == nil {
					arrived.Add(1)
				}
			})
		}

		both.Wait()

		if losing.Load() {
			t.Fatal("nothing was lost")
		}

		if count := arrived.Load(); count > 0 {
			t.Fatalf("%d answers arrived", count)
		}
	}
}

func TestFront_LostReplyComesAfterTheEffect(t *testing.T) {
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

// doubtfulWorld answers the first question about replies at risk late, and with no.
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

// TestFront_NewestAssessmentStands: a world that changes from two sides at once is not taken for
// what it was before.
func TestFront_NewestAssessmentStands(t *testing.T) {
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

	// The second may overtake the first, or has to wait for it.
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
