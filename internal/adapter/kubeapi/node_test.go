// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestNode_IsReadAsTheMachineReportsIt(t *testing.T) {
	api, _ := live(t)

	nodes, err := api.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if len(nodes) != 5 {
		t.Fatalf("%d nodes, want 5", len(nodes))
	}

	for _, node := range nodes {
		state, err := suite.World.Node(node.Name)
		if err != nil {
			t.Fatal(err)
		}

		controlPlane := state.Role == "controlplane"

		if node.ControlPlane != controlPlane || node.ExcludesWorkloads != controlPlane || !node.Ready || !node.Talos || node.ReadySince.IsZero() ||
			node.Unschedulable || node.CordonedBy != "" || node.Kubelet.String() != "1.35.2" {
			t.Errorf("observed %+v", node)
		}

		if node.SystemUUID != state.UUID || node.BootID != state.BootID || len(node.Addresses) != 1 || node.Addresses[0] != state.Address {
			t.Errorf("%s: UUID %q, boot ID %q, addresses %v; want %q, %q, %q",
				node.Name, node.SystemUUID, node.BootID, node.Addresses, state.UUID, state.BootID, state.Address)
		}
	}

	if uid, err := api.UID(t.Context()); err != nil || uid == "" {
		t.Errorf("UID %q, %v", uid, err)
	}
}

func TestNode_KubeletComplaintIsReported(t *testing.T) {
	api, _ := live(t)

	suite.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepDisk, Effect: model.EffectPressure}})
	t.Cleanup(func() { suite.SetFaults(nil) })

	for name, want := range map[string][]string{"worker-0": {"DiskPressure"}, "worker-1": nil} {
		eventually(t, "the complaints of "+name, func() (bool, error) {
			node := nodeNamed(t, api, name)

			return slices.Equal(node.Pressure, want) && node.Ready && !node.ExcludesWorkloads, nil
		})
	}

	suite.SetFaults(nil)

	eventually(t, "the complaint to end", func() (bool, error) { return len(nodeNamed(t, api, "worker-0").Pressure) == 0, nil })
}

func TestNode_ComponentPodsAreThoseOfControlPlaneAndProxy(t *testing.T) {
	api, _ := live(t)

	pods, err := api.ComponentPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	counts := map[cluster.Component]int{}

	for _, pod := range pods {
		counts[pod.Component]++

		if pod.Node == "" || pod.Image == "" || !pod.Ready {
			t.Errorf("observed %+v", pod)
		}
	}

	for component, want := range map[cluster.Component]int{
		cluster.APIServer: 3, cluster.ControllerManager: 3, cluster.Scheduler: 3, cluster.Proxy: 5, cluster.Kubelet: 0,
	} {
		if counts[component] != want {
			t.Errorf("%d pods of %s, want %d", counts[component], component, want)
		}
	}
}

func nodeNamed(t *testing.T, api *kubeapi.Client, name string) cluster.KubeNode {
	t.Helper()

	nodes, err := api.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for _, node := range nodes {
		if node.Name == name {
			return node
		}
	}

	t.Fatalf("there is no node %s", name)

	return cluster.KubeNode{}
}

func TestNode_OwnCordonIsMarkedAndTakenBack(t *testing.T) {
	api, _ := live(t)

	ours, err := api.Cordon(t.Context(), "worker-0", "run-1")
	if err != nil || !ours {
		t.Fatalf("ours %t, %v", ours, err)
	}

	if node := nodeNamed(t, api, "worker-0"); !node.Unschedulable || node.CordonedBy != "run-1" {
		t.Errorf("cordoned: %+v", node)
	}

	// The next run finds the cordon of the one that died.
	if ours, err := api.Cordon(t.Context(), "worker-0", "run-2"); err != nil || !ours {
		t.Errorf("cordoned before by us: ours %t, %v", ours, err)
	}

	if node := nodeNamed(t, api, "worker-0"); node.CordonedBy != "run-1" {
		t.Errorf("the cordon was marked again, by %q", node.CordonedBy)
	}

	for range 2 {
		if err := api.Uncordon(t.Context(), "worker-0"); err != nil {
			t.Fatal(err)
		}
	}

	if node := nodeNamed(t, api, "worker-0"); node.Unschedulable || node.CordonedBy != "" {
		t.Errorf("uncordoned: %+v", node)
	}
}

func TestNode_CordonOfSomebodyElseSurvives(t *testing.T) {
	api, other := live(t)

	patch := func(body string) {
		t.Helper()

		if _, err := other.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	patch(`{"spec":{"unschedulable":true}}`)

	if ours, err := api.Cordon(t.Context(), "worker-1", "run-1"); err != nil || ours {
		t.Errorf("ours %t, %v; want somebody else's", ours, err)
	}

	if err := api.Uncordon(t.Context(), "worker-1"); err != nil {
		t.Error(err)
	}

	if node := nodeNamed(t, api, "worker-1"); !node.Unschedulable || node.CordonedBy != "" {
		t.Errorf("the cordon did not survive: %+v", node)
	}

	// A mark without a cordon must not claim the next cordon.
	patch(`{"spec":{"unschedulable":null},"metadata":{"annotations":{"` + kubeapi.CordonAnnotation + `":"run-0"}}}`)

	if node := nodeNamed(t, api, "worker-1"); node.CordonedBy != "" {
		t.Errorf("a node that takes pods is cordoned by %q", node.CordonedBy)
	}

	if err := api.Uncordon(t.Context(), "worker-1"); err != nil {
		t.Error(err)
	}

	patch(`{"spec":{"unschedulable":true}}`)

	if node := nodeNamed(t, api, "worker-1"); node.CordonedBy != "" {
		t.Errorf("a cordon of somebody else is marked by %q", node.CordonedBy)
	}

	patch(`{"spec":{"unschedulable":null}}`)
}

// TestNode_OwnCordonIsNotTheMachinesOwn: kubectl uncordon leaves the annotation of
// a machine that cordoned its own node, which would lift our cordon at its next
// boot.
func TestNode_OwnCordonIsNotTheMachinesOwn(t *testing.T) {
	api, other := live(t)

	const talos = "talos.dev/cordoned"

	patch := func(body string) {
		t.Helper()

		if _, err := other.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	defer patch(`{"spec":{"unschedulable":null},"metadata":{"annotations":{"` + talos + `":null,"` + kubeapi.CordonAnnotation + `":null}}}`)

	patch(`{"spec":{"unschedulable":true},"metadata":{"annotations":{"` + talos + `":"true"}}}`)

	if ours, err := api.Cordon(t.Context(), "worker-1", "run-1"); err != nil || ours {
		t.Errorf("ours %t, %v; want the machine's", ours, err)
	}

	if node := nodeNamed(t, api, "worker-1"); !node.CordonedByTalos || node.CordonedBy != "" {
		t.Errorf("cordoned by the machine: %+v", node)
	}

	patch(`{"spec":{"unschedulable":null}}`)

	if ours, err := api.Cordon(t.Context(), "worker-1", "run-1"); err != nil || !ours {
		t.Fatalf("ours %t, %v", ours, err)
	}

	object, err := other.CoreV1().Nodes().Get(t.Context(), "worker-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if mark, left := object.Annotations[talos]; left {
		t.Errorf("our cordon leaves the machine's annotation %q", mark)
	}

	if node := nodeNamed(t, api, "worker-1"); !node.Unschedulable || node.CordonedBy != "run-1" || node.CordonedByTalos {
		t.Errorf("cordoned by us: %+v", node)
	}
}

func TestNode_MissingOneDoesNotFailAnUncordon(t *testing.T) {
	api, _ := live(t)

	if err := api.Uncordon(t.Context(), "nobody"); err != nil {
		t.Error(err)
	}

	if _, err := api.Cordon(t.Context(), "nobody", "run"); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("cordon: %v, want it not found", err)
	}
}

// TestNode_KubeletsOfVendorsAreNoPreReleases: a kubelet that reports v1.34.2-eks.1 would otherwise count as older
// than 1.34.2.
func TestNode_KubeletsOfVendorsAreNoPreReleases(t *testing.T) {
	t.Parallel()

	want := map[string]string{
		"v1.34.2": "1.34.2", "v1.34.2-eks-113cf36": "1.34.2", "v1.34.2+k3s1": "1.34.2", "v1.35.0-rc.1": "1.35.0-rc.1", "v1.35.0-rc.1+k3s1": "1.35.0-rc.1", "custom": "unknown",
	}

	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}}

	for text := range want {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: text}}
		node.Status.NodeInfo.KubeletVersion = text
		list.Items = append(list.Items, node)
	}

	api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		_ = json.NewEncoder(w).Encode(list)
	})

	nodes, err := api.Nodes(t.Context())
	if err != nil || len(nodes) != len(want) {
		t.Fatalf("%d nodes, %v; want %d", len(nodes), err, len(want))
	}

	for _, node := range nodes {
		if got := node.Kubelet.String(); got != want[node.Name] {
			t.Errorf("a kubelet that reports %q is %s, want %s", node.Name, got, want[node.Name])
		}
	}
}

func TestNode_SaysWhatTroublesItAndWhoCordonedIt(t *testing.T) {
	t.Parallel()

	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status}
	}

	for name, test := range map[string]struct {
		conditions []corev1.NodeCondition
		cordoned   bool
		annotated  map[string]string
		taint      string
		pressure   []string
		byTalos    bool
		excludes   bool
	}{
		"nothing": {conditions: []corev1.NodeCondition{
			condition(corev1.NodeDiskPressure, corev1.ConditionFalse), condition(corev1.NodeMemoryPressure, corev1.ConditionUnknown), condition(corev1.NodeReady, corev1.ConditionTrue),
		}},
		"a full disk":                 {conditions: []corev1.NodeCondition{condition(corev1.NodeDiskPressure, corev1.ConditionTrue)}, taint: corev1.TaintNodeDiskPressure, pressure: []string{"DiskPressure"}},
		"a network that is not there": {taint: corev1.TaintNodeNetworkUnavailable},
		"a kubelet that is gone":      {taint: corev1.TaintNodeUnreachable},
		"a taint of a person":         {taint: "dedicated", excludes: true},
		"everything": {conditions: []corev1.NodeCondition{
			condition(corev1.NodePIDPressure, corev1.ConditionTrue), condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), condition(corev1.NodeDiskPressure, corev1.ConditionTrue),
		}, pressure: []string{"DiskPressure", "MemoryPressure", "PIDPressure"}},
		"a cordon of Talos, with an empty mark": {cordoned: true, annotated: map[string]string{"talos.dev/cordoned": ""}, byTalos: true},
		"a cordon of ours beside its mark":      {cordoned: true, annotated: map[string]string{"talos.dev/cordoned": "true", kubeapi.CordonAnnotation: "run-1"}},
		"a cordon of Talos":                     {cordoned: true, annotated: map[string]string{"talos.dev/cordoned": "true"}, byTalos: true},
		"a cordon of a person":                  {cordoned: true},
		"a mark without a cordon":               {annotated: map[string]string{"talos.dev/cordoned": "true"}},
	} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: test.annotated}}
		node.Spec.Unschedulable = test.cordoned
		node.Status.Conditions = test.conditions

		if test.taint != "" {
			node.Spec.Taints = []corev1.Taint{{Key: test.taint, Effect: corev1.TaintEffectNoSchedule}}
		}

		api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")

			_ = json.NewEncoder(w).Encode(corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: []corev1.Node{node}})
		})

		nodes, err := api.Nodes(t.Context())
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%s: %d nodes, %v", name, len(nodes), err)
		}

		if !slices.Equal(nodes[0].Pressure, test.pressure) || nodes[0].CordonedByTalos != test.byTalos || nodes[0].ExcludesWorkloads != test.excludes {
			t.Errorf("%s: %+v; want pressure %v, cordoned by Talos %t, workloads excluded %t", name, nodes[0], test.pressure, test.byTalos, test.excludes)
		}
	}
}
