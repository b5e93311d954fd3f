// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// onNode lists the pods that a drain of a node takes.
func onNode(t *testing.T, f Fixture, name string) []cluster.Pod {
	t.Helper()

	pods, err := f.API().PodsToEvict(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}

	return pods
}

// stands reports whether a pod exists and is not being deleted.
func stands(t *testing.T, f Fixture, name string, pod cluster.Pod) bool {
	t.Helper()

	return slices.ContainsFunc(onNode(t, f, name), func(other cluster.Pod) bool { return other == pod })
}

// leaves waits until a pod is gone.
func leaves(t *testing.T, f Fixture, name string, pod cluster.Pod) {
	t.Helper()

	f.Eventually(t, "pod "+pod.String()+" to leave", func() (bool, error) {
		pods, err := f.API().PodsToEvict(t.Context(), name)

		return !slices.ContainsFunc(pods, func(other cluster.Pod) bool { return other.UID == pod.UID }), err
	})
}

// imposter returns another pod that had the name before.
func imposter(pod cluster.Pod) cluster.Pod {
	pod.UID = "22222222-0000-0000-0000-000000000000"

	return pod
}

func drainTakesPods(t *testing.T, f Fixture) {
	here, there := worker(t, f, 0), worker(t, f, 1)
	pod, other := f.Pod(t, "drained", here), f.Pod(t, "drained", there)

	if !stands(t, f, here, pod) || stands(t, f, here, other) || !stands(t, f, there, other) {
		t.Errorf("on %s are %v, on %s %v; want %s and %s", here, onNode(t, f, here), there, onNode(t, f, there), pod, other)
	}

	for _, machine := range f.Machines() {
		for _, one := range onNode(t, f, machine.Name) {
			if one.UID == "" || one.Name == "" || one.Namespace == "" {
				t.Errorf("on %s is %+v, want to know which it is", machine.Name, one)
			}

			for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
				if strings.HasPrefix(one.Name, component) {
					t.Errorf("a drain of %s takes %s", machine.Name, one)
				}
			}
		}
	}

	if pods := onNode(t, f, "never-there"); len(pods) > 0 {
		t.Errorf("on a node that is gone are %v", pods)
	}
}

func evictedPodLeaves(t *testing.T, f Fixture) {
	name := worker(t, f, 0)
	pod := f.Pod(t, "leaving", name)

	if err := f.API().Evict(t.Context(), pod); err != nil {
		t.Fatal(err)
	}

	if stands(t, f, name, pod) {
		t.Error("it is not on its way out")
	}

	leaves(t, f, name, pod)

	if err := f.API().Evict(t.Context(), pod); err != nil {
		t.Errorf("evicted what is gone: %v", err)
	}

	if err := f.API().DeletePod(t.Context(), pod); err != nil {
		t.Errorf("deleted what is gone: %v", err)
	}
}

func otherUIDIsNotEvicted(t *testing.T, f Fixture) {
	name := worker(t, f, 0)
	pod := f.Pod(t, "namesake", name)

	if err := f.API().Evict(t.Context(), imposter(pod)); err != nil {
		t.Errorf("evicted what is gone: %v", err)
	}

	if !stands(t, f, name, pod) {
		t.Error("the pod was taken for another one")
	}
}

func exhaustedBudget(t *testing.T, f Fixture) {
	name := worker(t, f, 0)
	pod := f.Pod(t, "precious", name)
	f.Budget(t, "precious", "guard", 1)

	err := f.API().Evict(t.Context(), pod)
	if !errors.Is(err, cluster.ErrBudget) || errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "guard") {
		t.Errorf("evicted: %v, want the budget guard to be exhausted", err)
	}

	if !cluster.Heals(err) {
		t.Errorf("%v does not heal", err)
	}

	if !stands(t, f, name, pod) {
		t.Error("the pod is on its way out")
	}
}

func givingBudget(t *testing.T, f Fixture) {
	here, there := worker(t, f, 0), worker(t, f, 1)
	first, second := f.Pod(t, "paired", here), f.Pod(t, "paired", there)
	f.Budget(t, "paired", "pair", 1)

	if err := f.API().Evict(t.Context(), first); err != nil {
		t.Fatal(err)
	}

	if err := f.API().Evict(t.Context(), second); !errors.Is(err, cluster.ErrBudget) {
		t.Errorf("evicted the second one: %v, want the budget to be exhausted", err)
	}

	leaves(t, f, here, first)

	if !stands(t, f, there, second) {
		t.Error("the second one is on its way out")
	}
}

func twoBudgets(t *testing.T, f Fixture) {
	name := worker(t, f, 0)
	pod := f.Pod(t, "contested", name)
	f.Budget(t, "contested", "first", 0)
	f.Budget(t, "contested", "second", 0)

	err := f.API().Evict(t.Context(), pod)
	if !errors.Is(err, cluster.ErrOverlap) || !errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrOutcomeUnknown) {
		t.Errorf("evicted: %v, want it refused because of two budgets", err)
	}

	if cluster.Heals(err) || !stands(t, f, name, pod) {
		t.Errorf("it heals: %t; the pod stands: %t", cluster.Heals(err), stands(t, f, name, pod))
	}
}

func deletedPodLeaves(t *testing.T, f Fixture) {
	name := worker(t, f, 0)
	pod := f.Pod(t, "deleted", name)
	f.Budget(t, "deleted", "keeper", 1)

	if err := f.API().DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}

	leaves(t, f, name, pod)
}

func otherUIDIsNotDeleted(t *testing.T, f Fixture) {
	name := worker(t, f, 0)
	pod := f.Pod(t, "namesake", name)

	if err := f.API().DeletePod(t.Context(), imposter(pod)); err != nil {
		t.Errorf("deleted what is gone: %v", err)
	}

	if !stands(t, f, name, pod) {
		t.Error("the pod was taken for another one")
	}
}

func workloadsAreTold(t *testing.T, f Fixture) {
	name := worker(t, f, 0)
	pod := f.Pod(t, "told", name)
	f.Budget(t, "told", "teller", 1)

	told, err := f.API().Workloads(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	index := slices.IndexFunc(told.Pods, func(one cluster.WorkloadPod) bool { return one.UID == pod.UID })
	if index < 0 {
		t.Fatalf("no word of %s", pod)
	}

	want := cluster.WorkloadPod{Pod: pod, Node: name, Ready: true}

	one := told.Pods[index]
	one.LocalData = nil
	if !reflect.DeepEqual(one, want) {
		t.Errorf("%+v, want %+v, which nobody brings back", one, want)
	}

	index = slices.IndexFunc(told.Budgets, func(one cluster.Budget) bool { return one.Name == "teller" })
	if index < 0 {
		t.Fatal("no word of its budget")
	}

	budget := cluster.Budget{Namespace: pod.Namespace, Name: "teller", Healthy: 1, Desired: 1, Expected: 1, Pods: []string{pod.UID}}
	if !reflect.DeepEqual(told.Budgets[index], budget) {
		t.Errorf("%+v, want %+v", told.Budgets[index], budget)
	}

	if len(told.Rooms) != len(f.Machines()) {
		t.Errorf("the room of %d nodes, want that of %d", len(told.Rooms), len(f.Machines()))
	}

	for _, machine := range f.Machines() {
		staying := slices.ContainsFunc(told.Pods, func(one cluster.WorkloadPod) bool { return one.Stays && one.Node == machine.Name })
		if !staying {
			t.Errorf("nothing stays on %s", machine.Name)
		}
	}
}
