// SPDX-License-Identifier: MPL-2.0

package sim_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func inMemory(t *testing.T, options sim.Options) *sim.Simulator {
	t.Helper()

	options.Dir, options.InMemory = t.TempDir(), true
	options.Talos, options.Kubernetes = "1.13.2", "1.34.2"

	simulator, err := sim.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := simulator.Stop(); err != nil {
			t.Error(err)
		}
	})

	return simulator
}

// user returns a client with the kubeconfig of the cluster.
func user(t *testing.T, simulator *sim.Simulator, agent string) kubernetes.Interface {
	t.Helper()

	config, err := clientcmd.BuildConfigFromFlags("", simulator.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	config.UserAgent = agent

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	return client
}

// TestMemory_APIComesAndGoesWithTheControlPlane, of which there is only one: its connections are cut, and later it
// answers again. Connections that bypass it do not end.
func TestMemory_APIComesAndGoesWithTheControlPlane(t *testing.T) {
	simulator := inMemory(t, sim.Options{ControlPlanes: 1, Workers: 1, Pods: 2, Speed: 120})
	client := user(t, simulator, "test")

	past, err := simulator.Config()
	if err != nil {
		t.Fatal(err)
	}

	direct, err := kubernetes.NewForConfig(past)
	if err != nil {
		t.Fatal(err)
	}

	follow := func(client kubernetes.Interface) <-chan watch.Event {
		t.Helper()

		opened, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(opened.Stop)

		return opened.ResultChan()
	}

	through, beside := follow(client), follow(direct)

	if err := simulator.World.RebootByHand("cp-0", model.RebootDefault); err != nil {
		t.Fatal(err)
	}

	select {
	case _, open := <-through:
		if open {
			t.Error("the watch tells something instead of ending")
		}
	case <-time.After(time.Minute):
		t.Fatal("the watch goes on although its control plane reboots")
	}

	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()

	for deadline := time.Now().Add(time.Minute); ; <-poll.C {
		_, err := client.CoreV1().Nodes().Get(t.Context(), "cp-0", metav1.GetOptions{})
		if err == nil {
			break
		}

		if time.Now().After(deadline) {
			t.Fatal("it does not answer again:", err)
		}
	}

	select {
	case _, open := <-beside:
		t.Errorf("a watch past the control plane: %t", open)
	default:
	}
}

// TestMemory_ObjectsTellTheTimeOfTheirClients, however fast the simulation is.
func TestMemory_ObjectsTellTheTimeOfTheirClients(t *testing.T) {
	begun := time.Now().Truncate(time.Second)
	simulator := inMemory(t, sim.Options{ControlPlanes: 1, Workers: 1, Speed: 6000})
	client := user(t, simulator, "test")

	// More than a simulated minute is over by then.
	made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	node, err := client.CoreV1().Nodes().Get(t.Context(), "worker-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	times := map[string]time.Time{"a ConfigMap": made.CreationTimestamp.Time, "a node": node.CreationTimestamp.Time}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			times["the Ready condition"] = condition.LastTransitionTime.Time
		}
	}

	for what, at := range times {
		if at.Before(begun) || at.After(time.Now()) {
			t.Errorf("%s is of %s, want a time since %s", what, at, begun)
		}
	}

	if len(times) != 3 {
		t.Errorf("there are only the times %v", times)
	}
}

// TestMemory_HistoryTellsTheProviderFromOthers by their user agents.
func TestMemory_HistoryTellsTheProviderFromOthers(t *testing.T) {
	simulator := inMemory(t, sim.Options{ControlPlanes: 1, Workers: 1})

	cordon := func(agent string) {
		t.Helper()

		for _, cordoned := range []string{"true", "false"} {
			_, err := user(t, simulator, agent).CoreV1().Nodes().Patch(t.Context(), "worker-0", types.MergePatchType,
				[]byte(`{"spec":{"unschedulable":`+cordoned+`}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	cordon("kubectl/v1.34.2")

	if verdict, err := simulator.Verdict(t.Context()); err != nil || len(verdict.Violations) > 0 {
		t.Errorf("a person who cordons: %+v, %v", verdict.Violations, err)
	}

	// The provider may not do so without the lease.
	cordon("terraform-provider-talosupgrade/test")

	if verdict, err := simulator.Verdict(t.Context()); err != nil || len(verdict.Violations) == 0 {
		t.Errorf("the provider cordons without the lease, and nobody minds: %v", err)
	}
}

// TestMemory_NodeThatComesBackIsAnotherObject: a kubelet whose Node object was deleted creates a new one.
func TestMemory_NodeThatComesBackIsAnotherObject(t *testing.T) {
	simulator := inMemory(t, sim.Options{ControlPlanes: 1, Workers: 1, Speed: 120})
	nodes := user(t, simulator, "test").CoreV1().Nodes()

	before, err := nodes.Get(t.Context(), "worker-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if err := nodes.Delete(t.Context(), "worker-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := simulator.World.RebootByHand("worker-0", model.RebootDefault); err != nil {
		t.Fatal(err)
	}

	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()

	for deadline := time.Now().Add(time.Minute); ; <-poll.C {
		found, err := nodes.Get(t.Context(), "worker-0", metav1.GetOptions{})
		if err == nil {
			if found.UID == before.UID || found.UID == "" {
				t.Errorf("it has the UID %q, and had %q", found.UID, before.UID)
			}

			return
		}

		if time.Now().After(deadline) {
			t.Fatal("it did not come back:", err)
		}
	}
}

// TestMemory_LostReplyComesAfterTheEffect, and the next one arrives.
func TestMemory_LostReplyComesAfterTheEffect(t *testing.T) {
	simulator := inMemory(t, sim.Options{
		ControlPlanes: 1, Workers: 1,
		Faults: []model.Fault{{Node: "worker-0", Step: model.StepPatch, Effect: model.EffectConnectionLost, Times: 1}},
	})
	nodes := user(t, simulator, "terraform-provider-talosupgrade/test").CoreV1().Nodes()

	annotate := func(value string) error {
		_, err := nodes.Patch(t.Context(), "worker-0", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"`+value+`"}}}`), metav1.PatchOptions{})

		return err
	}

	if err := annotate("1"); err == nil {
		t.Error("the reply arrived")
	}

	found, err := nodes.Get(t.Context(), "worker-0", metav1.GetOptions{})
	if err != nil || found.Annotations["a"] != "1" {
		t.Errorf("the node has the annotations %v, %v", found.Annotations, err)
	}

	if err := annotate("2"); err != nil {
		t.Error("the next one:", err)
	}
}

// TestMemory_OperatorsNeedTheRealServer, so asking for them in memory is an error.
func TestMemory_OperatorsNeedTheRealServer(t *testing.T) {
	_, err := sim.Start(t.Context(), sim.Options{ControlPlanes: 1, Talos: "1.13.2", Kubernetes: "1.34.2", Dir: t.TempDir(), InMemory: true, Management: true})
	if err == nil {
		t.Error("a management cluster in memory was accepted")
	}
}
