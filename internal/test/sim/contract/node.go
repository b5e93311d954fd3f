// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// worker is a worker of the cluster by its place among them.
func worker(t *testing.T, f Fixture, place int) string {
	t.Helper()

	for _, machine := range f.Machines() {
		if machine.ControlPlane {
			continue
		}

		if place == 0 {
			return machine.Name
		}

		place--
	}

	t.Fatal("the cluster has too few workers")

	return ""
}

// node is a node as the implementation sees it.
func node(t *testing.T, f Fixture, name string) cluster.KubeNode {
	t.Helper()

	nodes, err := f.API().Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	index := slices.IndexFunc(nodes, func(one cluster.KubeNode) bool { return one.Name == name })
	if index < 0 {
		t.Fatalf("there is no node %s", name)
	}

	return nodes[index]
}

func nodesAreReported(t *testing.T, f Fixture) {
	nodes, err := f.API().Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	machines := f.Machines()
	if len(nodes) != len(machines) {
		t.Errorf("%d nodes, want %d", len(nodes), len(machines))
	}

	for _, machine := range machines {
		found, controlPlane := node(t, f, machine.Name), machine.ControlPlane

		if !found.Ready || found.ReadyReason != "KubeletReady" || found.ReadySince.IsZero() || !found.Talos || len(found.Pressure) > 0 {
			t.Errorf("%s: %+v, want a node of Talos that is ready and complains of nothing", machine.Name, found)
		}

		if found.ControlPlane != controlPlane || found.ExcludesWorkloads != controlPlane {
			t.Errorf("%s is a control plane: %t, without workloads: %t, want both to be %t",
				machine.Name, found.ControlPlane, found.ExcludesWorkloads, controlPlane)
		}

		if found.Unschedulable || found.CordonedBy != "" || found.CordonedByTalos {
			t.Errorf("%s is cordoned: %+v", machine.Name, found)
		}

		if !strings.EqualFold(found.SystemUUID, machine.systemUUID()) || found.BootID != machine.BootID || found.Kubelet.String() != machine.Kubelet {
			t.Errorf("%s: %+v, want UUID %s, boot ID %s and kubelet %s", machine.Name, found, machine.systemUUID(), machine.BootID, machine.Kubelet)
		}

		if found.MachineID != machine.MachineID || found.MachineID == "" {
			t.Errorf("%s: machine ID %q, want %q", machine.Name, found.MachineID, machine.MachineID)
		}

		foreign := slices.DeleteFunc(slices.Clone(found.Addresses), func(one string) bool { return slices.Contains(machine.Addresses, one) })
		if len(found.Addresses) == 0 || len(foreign) > 0 {
			t.Errorf("%s has the addresses %v, want some of %v", machine.Name, found.Addresses, machine.Addresses)
		}
	}
}

// nodesAreRead reads each node alone, and all of them as of now.
func nodesAreRead(t *testing.T, f Fixture) {
	stop := f.API().FollowNodes(t.Context())
	defer stop()

	listed, err := f.API().Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for _, claim := range []string{"", listed[0].Name, listed[0].Name} {
		now, err := f.API().NodesNow(t.Context(), claim)
		if err != nil || !slices.Equal(namesOf(now), namesOf(listed)) {
			t.Errorf("the nodes are %v now, %v, want %v", namesOf(now), err, namesOf(listed))
		}
	}

	for _, node := range listed {
		if alone, err := f.API().Node(t.Context(), node.Name); err != nil || alone.Name != node.Name || alone.BootID != node.BootID || alone.Ready != node.Ready {
			t.Errorf("alone it is %+v, %v, want %+v", alone, err, node)
		}
	}

	if _, err := f.API().Node(t.Context(), "nobody"); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("a node that does not exist: %v", err)
	}
}

func namesOf(nodes []cluster.KubeNode) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}

	slices.Sort(names)

	return names
}

// staticPodsAreListed wants the pods of the control plane and none of kube-proxy.
func staticPodsAreListed(t *testing.T, f Fixture) {
	pods, err := f.API().StaticPods(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	all, err := f.API().ComponentPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	static := func(pods []cluster.ComponentPod) int {
		return len(slices.DeleteFunc(slices.Clone(pods), func(pod cluster.ComponentPod) bool { return !pod.Component.Static() }))
	}

	if len(pods) == 0 || len(pods) != static(pods) || len(pods) != static(all) {
		t.Errorf("%d pods, %d of them static, want %d", len(pods), static(pods), static(all))
	}

	one := pods[0]

	narrow, err := f.API().StaticPods(t.Context(), one.Node, one.Component)
	if err != nil || len(narrow) != 1 || narrow[0].Node != one.Node || narrow[0].Component != one.Component {
		t.Errorf("%s on %s: %+v, %v", one.Component, one.Node, narrow, err)
	}

	own, err := f.API().StaticPods(t.Context(), one.Node)
	if err != nil || len(own) == 0 || slices.ContainsFunc(own, func(pod cluster.ComponentPod) bool { return pod.Node != one.Node || !pod.Component.Static() }) {
		t.Errorf("on %s: %+v, %v", one.Node, own, err)
	}
}

func oneUID(t *testing.T, f Fixture) {
	first, err := f.API().UID(t.Context())
	if err != nil || first == "" {
		t.Fatalf("UID %q, %v", first, err)
	}

	if second, err := f.API().UID(t.Context()); err != nil || second != first {
		t.Errorf("UID %q, %v, want %q again", second, err, first)
	}
}

func componentPodsAreListed(t *testing.T, f Fixture) {
	pods, err := f.API().ComponentPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for _, machine := range f.Machines() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy} {
			index := slices.IndexFunc(pods, func(pod cluster.ComponentPod) bool {
				return pod.Node == machine.Name && pod.Component == component
			})

			static := component != cluster.Proxy
			if wanted := static && machine.ControlPlane || !static && !machine.Proxyless; wanted != (index >= 0) {
				t.Errorf("%s has a pod of %s: %t, want %t", machine.Name, component, index >= 0, wanted)

				continue
			}

			if index < 0 {
				continue
			}

			pod := pods[index]
			if pod.Image == "" || !pod.Ready || pod.Trouble != "" || (pod.ConfigVersion != "") != static {
				t.Errorf("%+v, want a pod that runs", pod)
			}

			if (pod.FilesVersion != "") != (component == cluster.APIServer) || static && pod.Started.IsZero() {
				t.Errorf("%+v, want the version of files of an API server, and since when static pods run", pod)
			}

			if static && pod.Image != machine.Images[component] {
				t.Errorf("%s of %s runs %s, want %s", component, machine.Name, pod.Image, machine.Images[component])
			}
		}
	}
}

// cordon has a run cordon a node.
func cordon(t *testing.T, f Fixture, name, run string, wantOurs bool) {
	t.Helper()

	ours, err := f.API().Cordon(t.Context(), name, run)
	if err != nil || ours != wantOurs {
		t.Errorf("cordoned %s: ours %t, %v, want %t", name, ours, err, wantOurs)
	}
}

func uncordon(t *testing.T, f Fixture, name string) {
	t.Helper()

	if err := f.API().Uncordon(t.Context(), name); err != nil {
		t.Errorf("uncordoned %s: %v", name, err)
	}
}

// expectCordon looks at the cordon of a node and at whose it is.
func expectCordon(t *testing.T, f Fixture, name string, on bool, by string) {
	t.Helper()

	if found := node(t, f, name); found.Unschedulable != on || found.CordonedBy != by || found.CordonedByTalos {
		t.Errorf("%s: cordoned %t by %q (by the machine: %t), want %t by %q",
			name, found.Unschedulable, found.CordonedBy, found.CordonedByTalos, on, by)
	}
}

func cordonIsMarked(t *testing.T, f Fixture) {
	name := worker(t, f, 0)

	cordon(t, f, name, "run-1", true)
	expectCordon(t, f, name, true, "run-1")
	expectCordon(t, f, worker(t, f, 1), false, "")

	uncordon(t, f, name)
	expectCordon(t, f, name, false, "")

	uncordon(t, f, name)
	expectCordon(t, f, name, false, "")
}

func cordonOfAnEarlierRun(t *testing.T, f Fixture) {
	name := worker(t, f, 0)

	cordon(t, f, name, "run-1", true)
	cordon(t, f, name, "run-2", true)
	expectCordon(t, f, name, true, "run-1")

	uncordon(t, f, name)
	expectCordon(t, f, name, false, "")
}

func foreignCordon(t *testing.T, f Fixture) {
	name := worker(t, f, 0)

	f.CordonAsPerson(t, name, true)
	cordon(t, f, name, "run-1", false)
	expectCordon(t, f, name, true, "")

	uncordon(t, f, name)
	expectCordon(t, f, name, true, "")

	f.CordonAsPerson(t, name, false)
	expectCordon(t, f, name, false, "")
}

func foreignCordonUnderMark(t *testing.T, f Fixture) {
	name := worker(t, f, 0)

	cordon(t, f, name, "run-1", true)
	f.CordonAsPerson(t, name, false)
	f.CordonAsPerson(t, name, true)
	expectCordon(t, f, name, true, "")
	cordon(t, f, name, "run-2", false)

	uncordon(t, f, name)
	expectCordon(t, f, name, true, "")

	f.CordonAsPerson(t, name, false)
	cordon(t, f, name, "run-3", true)
	expectCordon(t, f, name, true, "run-3")
	uncordon(t, f, name)
}

func markWithoutCordon(t *testing.T, f Fixture) {
	name := worker(t, f, 0)

	cordon(t, f, name, "run-1", true)
	f.CordonAsPerson(t, name, false)
	expectCordon(t, f, name, false, "")

	uncordon(t, f, name)
	f.CordonAsPerson(t, name, true)
	expectCordon(t, f, name, true, "")
	cordon(t, f, name, "run-2", false)

	f.CordonAsPerson(t, name, false)
	cordon(t, f, name, "run-3", true)
	expectCordon(t, f, name, true, "run-3")
	uncordon(t, f, name)
}

func goneNode(t *testing.T, f Fixture) {
	if ours, err := f.API().Cordon(t.Context(), "never-there", "run-1"); !errors.Is(err, cluster.ErrNotFound) || ours {
		t.Errorf("cordoned a node that is gone: ours %t, %v, want ErrNotFound", ours, err)
	}

	uncordon(t, f, "never-there")
}

func givenUp(t *testing.T, f Fixture) {
	name := worker(t, f, 0)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if ours, err := f.API().Cordon(ctx, name, "run-1"); !errors.Is(err, context.Canceled) || ours || errors.Is(err, cluster.ErrOutcomeUnknown) {
		t.Errorf("cordoned: ours %t, %v, want the cancellation", ours, err)
	}

	if _, err := f.API().WriteLease(ctx, cluster.Lease{Holder: "run-1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("wrote the lease: %v, want the cancellation", err)
	}

	if lease, err := f.API().Lease(t.Context()); err != nil || lease.ResourceVersion != "" {
		t.Errorf("the lease is %+v, %v, want none", lease, err)
	}

	expectCordon(t, f, name, false, "")
}
