// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func componentPod(t *testing.T, c *ports.Client, node string, component cluster.Component) (cluster.ComponentPod, bool) {
	t.Helper()

	pods, err := c.ComponentPods(context.Background())
	if err != nil {
		t.Fatal(err)
	}

	for _, pod := range pods {
		if pod.Node == node && pod.Component == component {
			return pod, true
		}
	}

	return cluster.ComponentPod{}, false
}

func TestPod_StaticFollowsItsConfiguration(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		before, found := componentPod(t, c, "cp-0", cluster.APIServer)
		if !found || !before.Ready || before.ConfigVersion == "" {
			t.Fatalf("at rest: %+v", before)
		}

		if err := c.Configure(ctx, firstAt, from(cluster.APIServer, serverTo)); err != nil {
			t.Fatal(err)
		}

		var away bool

		for range 150 {
			pod, found := componentPod(t, c, "cp-0", cluster.APIServer)
			away = away || !found || !pod.Ready

			time.Sleep(811 * time.Millisecond)
		}

		status, err := c.Component(ctx, firstAt, cluster.APIServer)
		if err != nil {
			t.Fatal(err)
		}

		after, _ := componentPod(t, c, "cp-0", cluster.APIServer)
		if !away || !after.Ready || after.Image != serverTo || after.ConfigVersion != status.ConfigVersion ||
			after.ConfigVersion == before.ConfigVersion {
			t.Errorf("got %+v (away %t) for %+v, want a ready pod of the new configuration", after, away, status)
		}

		if other, _ := componentPod(t, c, "cp-1", cluster.APIServer); strings.Contains(other.Image, wanted) || !other.Ready {
			t.Errorf("cp-1: %+v", other)
		}
	})
}

func TestPod_StaticSaysWhyItDoesNotRun(t *testing.T) {
	absent := []model.Fault{{
		Node: "cp-0", Step: model.StepComponentPull, Effect: model.EffectNotFound, Component: model.SchedulerName,
	}}

	inCluster(t, on134(func(o *model.Options) { o.Faults = absent }), func(_ *ports.Cluster, c *ports.Client) {
		change := from(cluster.Scheduler, "registry.k8s.io/kube-scheduler:v"+wanted)
		if err := c.Configure(context.Background(), firstAt, change); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * time.Minute)

		pod, _ := componentPod(t, c, "cp-0", cluster.Scheduler)
		if pod.Ready || !strings.HasPrefix(pod.Trouble, "ImagePullBackOff: ") {
			t.Errorf("got %+v, want one that cannot be pulled", pod)
		}
	})
}

func TestPod_OfASilentNodeIsReadyUntilKubernetesNotices(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		if err := c.Reboot(context.Background(), thirdAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		var early, late bool

		for range 200 {
			node := kubeNode(t, c, "cp-2")
			pod, found := componentPod(t, c, "cp-2", cluster.Scheduler)

			switch {
			case !found:
				t.Fatal("the pod of a node that is away is not listed")
			case node.Ready:
				early = early || pod.Ready
			case node.ReadyReason == "NodeStatusUnknown" && pod.Ready:
				late = true
			}

			time.Sleep(time.Second)
		}

		if !early || late {
			t.Errorf("ready while the node was: %t; ready while it was lost: %t", early, late)
		}

		if pod, _ := componentPod(t, c, "cp-2", cluster.Scheduler); !pod.Ready || pod.ConfigVersion != "1" {
			t.Errorf("after the boot: %+v", pod)
		}
	})
}

func TestPod_DisabledProxyHasNone(t *testing.T) {
	inCluster(t, on134(func(o *model.Options) { o.ProxyDisabled = true }), func(_ *ports.Cluster, c *ports.Client) {
		if pod, found := componentPod(t, c, "worker-0", cluster.Proxy); found {
			t.Errorf("got %+v, want none", pod)
		}

		machine, err := c.Machine(context.Background(), firstAt, nil, cluster.Everything)
		if err != nil || !machine.Config.Disabled[cluster.Proxy] {
			t.Errorf("got %+v, %v, want a disabled kube-proxy", machine.Config, err)
		}
	})
}

func TestPod_MachineTellsWhatItsConfigurationNames(t *testing.T) {
	mirror := map[string]string{"kubelet": "mirror.example:5000/talos/kubelet"}

	for name, given := range map[string]struct {
		options model.Options
		address string
		want    map[cluster.Component]string
	}{
		"pinned worker": {on134(), workerAt, map[cluster.Component]string{cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.34.1"}},
		"mirror": {
			on134(func(o *model.Options) { o.ComponentImages = mirror }), workerAt,
			map[cluster.Component]string{cluster.Kubelet: "mirror.example:5000/talos/kubelet:v1.34.1"},
		},
		"pinned control plane": {on134(), firstAt, map[cluster.Component]string{
			cluster.Kubelet:           "ghcr.io/siderolabs/kubelet:v1.34.1",
			cluster.APIServer:         "registry.k8s.io/kube-apiserver:v1.34.1",
			cluster.ControllerManager: "registry.k8s.io/kube-controller-manager:v1.34.1",
			cluster.Scheduler:         "registry.k8s.io/kube-scheduler:v1.34.1",
			cluster.Proxy:             "registry.k8s.io/kube-proxy:v1.34.1",
		}},
		"unpinned": {model.Options{Unpinned: true}, firstAt, map[cluster.Component]string{}},
		"documents": {on134(func(o *model.Options) { o.Talos, o.Documents = "1.14.1", true }), workerAt, map[cluster.Component]string{
			cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.34.1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, given.options, func(_ *ports.Cluster, c *ports.Client) {
				machine, err := c.Machine(context.Background(), given.address, nil, cluster.Everything)
				if err != nil {
					t.Fatal(err)
				}

				if machine.Config.InstallImage == "" || len(machine.Config.Images) != len(given.want) {
					t.Errorf("got %+v, want %v and an installer", machine.Config, given.want)
				}

				for component, image := range given.want {
					if got := machine.Config.Images[component]; got != image {
						t.Errorf("%s: got %q, want %q", component, got, image)
					}
				}
			})
		})
	}
}

func workloads(t *testing.T, c *ports.Client) cluster.Workloads {
	t.Helper()

	listed, err := c.Workloads(context.Background())
	if err != nil {
		t.Fatal(err)
	}

	return listed
}

// podsOf returns the pods of an app.
func podsOf(listed cluster.Workloads, app string) []cluster.WorkloadPod {
	return slices.DeleteFunc(slices.Clone(listed.Pods), func(p cluster.WorkloadPod) bool { return !strings.HasPrefix(p.Name, app+"-") })
}

func budgetNamed(t *testing.T, listed cluster.Workloads, name string) cluster.Budget {
	t.Helper()

	index := slices.IndexFunc(listed.Budgets, func(b cluster.Budget) bool { return b.Name == name })
	if index < 0 {
		t.Fatalf("there is no budget %s in %+v", name, listed.Budgets)
	}

	return listed.Budgets[index]
}

func TestWorkload_SaysWhatADrainWouldMean(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		s.AddApp("web", 3, &apiserver.Budget{MinAvailable: 2})
		s.AddPod("bound", "worker-1", &apiserver.Budget{MinAvailable: 1})
		s.StartPod(apiserver.PodSpec{App: "alone", Node: "worker-0", Unmanaged: true, LocalData: []string{"scratch"}, CPU: 250, Memory: 64 << 20})
		s.StartPod(apiserver.PodSpec{App: "ill", NotReady: true})

		listed := workloads(t, c)

		web := podsOf(listed, "web")
		if len(web) != 3 || web[0].Owner != "ReplicaSet/web" || web[0].Replicas != 3 || !web[0].Ready {
			t.Errorf("web: %+v", web)
		}

		if bound := podsOf(listed, "bound"); len(bound) != 1 || bound[0].Owner == "" || bound[0].Node != "worker-1" {
			t.Errorf("bound: %+v", bound)
		}

		alone := podsOf(listed, "alone")
		if len(alone) != 1 || alone[0].Owner != "" || alone[0].Replicas != 0 || !slices.Equal(alone[0].LocalData, []string{"scratch"}) ||
			alone[0].CPU != 250 || alone[0].Memory != 64<<20 || alone[0].Node != "worker-0" {
			t.Errorf("alone: %+v", alone)
		}

		if ill := podsOf(listed, "ill"); len(ill) != 1 || ill[0].Ready {
			t.Errorf("ill: %+v", ill)
		}

		want := cluster.Budget{
			Namespace: "workload", Name: "web", Allowed: 1, Healthy: 3, Desired: 2, Expected: 3, Pods: []string{web[0].UID, web[1].UID, web[2].UID},
		}
		if got := budgetNamed(t, listed, "web"); got.String() != "workload/web" || got.Allowed != want.Allowed || got.Healthy != want.Healthy ||
			got.Desired != want.Desired || got.Expected != want.Expected || !slices.Equal(got.Pods, want.Pods) || got.Stale {
			t.Errorf("got %+v, want %+v", got, want)
		}

		if got := budgetNamed(t, listed, "bound"); got.Allowed != 0 || got.Healthy != 1 || got.Desired != 1 || got.Expected != 1 {
			t.Errorf("got %+v, want one that never gives", got)
		}

		for _, pod := range listed.Pods {
			static := strings.HasPrefix(pod.Name, "kube-")
			if pod.Stays != static || static && (pod.Owner == "" || pod.Namespace != "kube-system") {
				t.Errorf("got %+v", pod)
			}
		}

		if len(listed.Rooms) != 5 || listed.Rooms[0] != (cluster.Room{Node: "cp-0", CPU: 4000, Memory: 8 << 30, Pods: 110}) {
			t.Errorf("rooms: %+v", listed.Rooms)
		}
	})
}

func TestWorkload_IsWhatTheDrainFinds(t *testing.T) {
	inCluster(t, model.Options{Faults: []model.Fault{{Node: "cp-1", Step: model.StepDrain, Effect: model.EffectBlockedByBudget}}}, func(s *ports.Cluster, c *ports.Client) {
		s.AddApp("web", 4, nil)

		listed := workloads(t, c)

		for _, node := range []string{"cp-0", "cp-1", "worker-0", "worker-1"} {
			pods, err := c.PodsToEvict(context.Background(), node)
			if err != nil {
				t.Fatal(err)
			}

			var there []cluster.Pod

			for _, pod := range listed.Pods {
				if pod.Node == node && !pod.Stays {
					there = append(there, pod.Pod)
				}
			}

			if !slices.Equal(pods, there) {
				t.Errorf("%s: a drain finds %+v, and the workloads are %+v", node, pods, there)
			}
		}

		blocking := budgetNamed(t, listed, "blocks-drain-of-cp-1")
		if blocking.Allowed != 0 || len(blocking.Pods) != 1 {
			t.Errorf("got %+v, want one with nothing to give", blocking)
		}

		s.World().SetFaults(nil)

		if listed = workloads(t, c); len(listed.Budgets) != 0 || len(podsOf(listed, "blocks")) != 0 {
			t.Errorf("without the fault there are %+v", listed.Budgets)
		}
	})
}

func TestWorkload_BudgetsBlockEvictions(t *testing.T) {
	for name, given := range map[string]struct {
		notReady bool
		budgets  []apiserver.Budget
		want     error
		also     error
	}{
		"none":                             {},
		"one that gives":                   {budgets: []apiserver.Budget{{MinAvailable: 0}}},
		"one that does not":                {budgets: []apiserver.Budget{{MinAvailable: 1}}, want: cluster.ErrBudget},
		"two, however much they give":      {budgets: []apiserver.Budget{{}, {Name: "second"}}, want: cluster.ErrRefused, also: cluster.ErrOverlap},
		"one whose numbers are old":        {budgets: []apiserver.Budget{{Stale: true}}, want: cluster.ErrBudget},
		"one whose numbers cannot be told": {budgets: []apiserver.Budget{{Unsynced: "found no controllers"}}, want: cluster.ErrBudget},
		"old numbers, over what is ready":  {budgets: []apiserver.Budget{{Unsynced: "found no controllers", AlwaysAllow: true}}, want: cluster.ErrBudget},
		"old numbers, over what is not":    {notReady: true, budgets: []apiserver.Budget{{Unsynced: "found no controllers", AlwaysAllow: true}}},
		"over a pod that is not ready":     {notReady: true, budgets: []apiserver.Budget{{MinAvailable: 1}}, want: cluster.ErrBudget},
		"that lets what is not ready pass": {notReady: true, budgets: []apiserver.Budget{{MinAvailable: 1, AlwaysAllow: true}}},
		"that keeps what is ready":         {budgets: []apiserver.Budget{{MinAvailable: 1, AlwaysAllow: true}}, want: cluster.ErrBudget},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
				s.StartPod(apiserver.PodSpec{App: "db", Node: "worker-0", NotReady: given.notReady})

				for _, budget := range given.budgets {
					budget.App = "db"
					s.AddBudget(budget)
				}

				listed := workloads(t, c)
				pod := podsOf(listed, "db")[0]

				for i, budget := range given.budgets {
					got := listed.Budgets[i]
					if got.Unsynced != budget.Unsynced || got.Unsynced != "" && got.Allowed != 0 || got.Stale != budget.Stale || got.AlwaysAllow != budget.AlwaysAllow || !slices.Equal(got.Pods, []string{pod.UID}) {
						t.Errorf("got %+v for %+v", got, budget)
					}
				}

				err := c.Evict(context.Background(), pod.Pod)
				if given.want == nil && err == nil {
					return
				}

				means(t, err, given.want)

				if given.also != nil || errors.Is(err, cluster.ErrOverlap) {
					means(t, err, given.also)
				}
			})
		})
	}
}

func TestWorkload_EvictedPodGoesWhereItFits(t *testing.T) {
	evict := func(t *testing.T, c *ports.Client, app string) []cluster.WorkloadPod {
		t.Helper()

		if err := c.Evict(context.Background(), podsOf(workloads(t, c), app)[0].Pod); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)

		return podsOf(workloads(t, c), app)
	}

	inCluster(t, model.Options{ControlPlanes: 1, Workers: 3}, func(s *ports.Cluster, c *ports.Client) {
		for _, node := range []string{"worker-1", "worker-2"} {
			s.SetRoom(cluster.Room{Node: node, CPU: 1000, Memory: 1 << 30, Pods: 10})
		}

		s.StartPod(apiserver.PodSpec{App: "filler", Node: "worker-1", CPU: 800})
		s.StartPod(apiserver.PodSpec{App: "fitting", Node: "worker-0", CPU: 500, Memory: 1 << 20})
		s.StartPod(apiserver.PodSpec{App: "greedy", Node: "worker-0", Memory: 2 << 30})
		s.StartPod(apiserver.PodSpec{App: "alone", Node: "worker-0", Unmanaged: true})
		s.StartPod(apiserver.PodSpec{App: "picky", Node: "worker-0", Fits: []string{"worker-0"}})

		if _, err := c.Cordon(context.Background(), "worker-0", "run"); err != nil {
			t.Fatal(err)
		}

		if got := evict(t, c, "fitting"); len(got) != 1 || got[0].Node != "worker-2" || !got[0].Ready || got[0].CPU != 500 {
			t.Errorf("fitting: %+v", got)
		}

		if got := evict(t, c, "alone"); len(got) != 0 {
			t.Errorf("alone: %+v", got)
		}

		for _, app := range []string{"greedy", "picky"} {
			if got := evict(t, c, app); len(got) != 1 || got[0].Node != "" || got[0].Ready || got[0].Replicas != 1 {
				t.Errorf("%s: %+v", app, got)
			}
		}

		if err := c.Uncordon(context.Background(), "worker-0"); err != nil {
			t.Fatal(err)
		}

		_ = workloads(t, c)

		time.Sleep(time.Minute)

		for _, app := range []string{"greedy", "picky"} {
			if got := podsOf(workloads(t, c), app); len(got) != 1 || got[0].Node != "worker-0" || !got[0].Ready {
				t.Errorf("%s, with its node back: %+v", app, got)
			}
		}
	})
}

func TestWorkload_NeedsAnAPIServer(t *testing.T) {
	inCluster(t, model.Options{ControlPlanes: 1, Workers: 1}, func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		var seen []string

		c.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			seen = append(seen, call.Method)

			return next(ctx)
		})

		if err := c.Reboot(ctx, firstAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		time.Sleep(20 * time.Second)

		_, err := c.Workloads(ctx)
		means(t, err, cluster.ErrUnreachable)

		_, err = c.Objects(ctx, cluster.ObjectQuery{APIVersion: "v1", Kind: "Widget"})
		means(t, err, cluster.ErrUnreachable)

		if !slices.Equal(seen, []string{"Reboot", "Workloads", "Objects"}) {
			t.Errorf("interceptors saw %q", seen)
		}
	})
}
