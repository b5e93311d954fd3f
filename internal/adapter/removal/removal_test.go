// SPDX-License-Identifier: MPL-2.0

package removal_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/removal"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodes are the states of nodes by address.
type nodes map[string]state.State

func (n nodes) State(address string) state.State { return n[address] }

// newNode returns a node with the command lines of components by name.
func newNode(t *testing.T, commands map[string][]string) state.State {
	t.Helper()

	store := state.WrapCore(namespaced.NewState(inmem.Build))

	for component, command := range commands {
		var described resource.Resource

		if component == k8s.KubeletID {
			kubelet := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
			kubelet.TypedSpec().Args = command
			described = kubelet
		} else {
			pod := k8s.NewStaticPod(k8s.NamespaceName, component)
			pod.TypedSpec().Pod = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": component, "command": command}}}}
			described = pod
		}

		if err := store.Create(t.Context(), described); err != nil {
			t.Fatal(err)
		}
	}

	return store
}

// api returns a Kubernetes API that has the given objects, by path, and nothing else.
func api(t *testing.T, objects map[string]int, refuses int) *rest.Config {
	t.Helper()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		count, ok := objects[request.URL.Path]

		if code := map[bool]int{true: refuses, false: http.StatusNotFound}[refuses != 0]; !ok {
			w.WriteHeader(code)

			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})

			return
		}

		list := map[string]any{"kind": "List", "apiVersion": "v1", "items": slices.Repeat([]any{map[string]any{"kind": "Thing", "apiVersion": "v1"}}, count)}

		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)

	return &rest.Config{Host: server.URL}
}

func parse(t *testing.T, text string) version.Version {
	t.Helper()

	parsed, err := version.Parse(text)
	if err != nil {
		t.Fatal(err)
	}

	return parsed
}

func TestRemoval_FindingsComeInAStableOrder(t *testing.T) {
	cluster0 := nodes{
		"10.0.0.1": newNode(t, map[string][]string{
			k8s.APIServerID:         {"kube-apiserver", "--cloud-config=/x", "--feature-gates=CPUManager=true,AllAlpha=false", "--enable-admission-plugins=SecurityContextDeny"},
			k8s.ControllerManagerID: {"kube-controller-manager", "--feature-gates=AppArmor=false"},
			k8s.KubeletID:           {"--containerd=/run/x", "--boot-id-file=/x"},
		}),
		"10.0.0.2": newNode(t, map[string][]string{k8s.APIServerID: {"kube-apiserver", "--feature-gates=CPUManager=true"}}),
		"10.0.0.9": newNode(t, map[string][]string{k8s.KubeletID: {"--boot-id-file=/x", "--cloud-config="}}),
	}

	const (
		apiServer, manager, kubelet = cluster.APIServer, cluster.ControllerManager, cluster.Kubelet
		flag, gate                  = removal.KindFlag, removal.KindFeatureGate
		workloads                   = "/apis/scheduling.k8s.io/v1alpha2/workloads"
	)

	// They are gone from 1.33 on.
	gates := []cluster.Removal{
		{Kind: gate, Name: "AppArmor", Address: "10.0.0.1", Component: manager},
		{Kind: gate, Name: "CPUManager", Address: "10.0.0.1", Component: apiServer},
		{Kind: gate, Name: "CPUManager", Address: "10.0.0.2", Component: apiServer},
	}

	for name, test := range map[string]struct {
		from, to string
		want     []cluster.Removal
	}{
		"flags and gates of static pods": {"1.32.4", "1.33.1", slices.Concat([]cluster.Removal{
			{Kind: flag, Name: "cloud-config", Address: "10.0.0.1", Component: apiServer},
		}, gates)},
		"admission plugins": {"1.29.0", "1.30.0", []cluster.Removal{
			{Kind: removal.KindAdmissionPlugin, Name: "SecurityContextDeny", Address: "10.0.0.1", Component: apiServer},
		}},
		"flags of kubelets": {"1.33.0", "1.34.0", slices.Concat([]cluster.Removal{{Kind: flag, Name: "cloud-config", Address: "10.0.0.9", Component: kubelet}}, gates)},
		"flags of kubelets and objects of an API": {"1.36.0", "1.37.0", slices.Concat([]cluster.Removal{
			{Kind: flag, Name: "boot-id-file", Address: "10.0.0.1", Component: kubelet},
			{Kind: flag, Name: "boot-id-file", Address: "10.0.0.9", Component: kubelet},
			{Kind: flag, Name: "containerd", Address: "10.0.0.1", Component: kubelet},
		}, gates, []cluster.Removal{
			{Kind: removal.KindAPI, Name: "workloads.v1alpha2.scheduling.k8s.io", Objects: 3},
		})},
		"nothing else in use":   {"1.34.2", "1.35.0", slices.Clone(gates)},
		"a step within a minor": {"1.32.1", "1.32.9", nil},
	} {
		client := removal.New(cluster0, api(t, map[string]int{workloads: 3}, 0))
		to := parse(t, test.to)

		for i := range test.want {
			test.want[i].In = to
		}

		// It runs twice, because maps have no order.
		for range 2 {
			got, err := client.Removals(t.Context(), parse(t, test.from), to, []string{"10.0.0.2", "10.0.0.1"}, []string{"10.0.0.9"})
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%s: %+v, %v; want %+v", name, got, err, test.want)
			}
		}
	}
}

func TestRemoval_UnknownStepIsNotTakenForHarmless(t *testing.T) {
	client := removal.New(nodes{}, &rest.Config{Host: "http://127.0.0.1:1"})

	for _, to := range []string{"1.33.0", "1.36.0", "1.99.0"} {
		_, err := client.Removals(t.Context(), parse(t, "1.34.1"), parse(t, to), nil, nil)
		if !errors.Is(err, cluster.ErrUnsupported) || !strings.Contains(err.Error(), to) {
			t.Errorf("to %s: %v, want it unsupported", to, err)
		}
	}
}

// broken is a node whose reads all fail.
type broken struct {
	state.CoreState

	err error
}

func (b broken) Get(context.Context, resource.Pointer, ...state.GetOption) (resource.Resource, error) {
	return nil, b.err
}

func TestRemoval_FailedLookIsAnError(t *testing.T) {
	healthy := newNode(t, nil)
	reason := errors.New("the run was stopped")

	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(reason)

	for name, test := range map[string]struct {
		ctx  context.Context
		node error
		api  int
		want error
		says string
	}{
		"a node that is down":       {t.Context(), cluster.ErrUnreachable, 0, cluster.ErrUnreachable, "10.0.0.9"},
		"a role that may not":       {t.Context(), cluster.ErrDenied, 0, cluster.ErrDenied, "10.0.0.9"},
		"an API that says no":       {t.Context(), nil, http.StatusForbidden, cluster.ErrDenied, "removed APIs"},
		"an API that is unwell":     {t.Context(), nil, http.StatusInternalServerError, cluster.ErrUnreachable, "removed APIs"},
		"a caller that was stopped": {stopped, reason, 0, reason, "10.0.0.9"},
	} {
		worker := healthy
		if test.node != nil {
			worker = state.WrapCore(broken{err: test.node})
		}

		client := removal.New(nodes{"10.0.0.1": healthy, "10.0.0.9": worker}, api(t, nil, test.api))

		got, err := client.Removals(test.ctx, parse(t, "1.36.0"), parse(t, "1.37.0"), []string{"10.0.0.1"}, []string{"10.0.0.9"})
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || got != nil {
			t.Errorf("%s: %v, %v; want %v that says %q", name, got, err, test.want, test.says)
		}
	}
}
