// SPDX-License-Identifier: MPL-2.0

package removal_test

import (
	"slices"
	"testing"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/removal"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// rendering returns a control plane that renders kube-proxy with arguments.
func rendering(t *testing.T, enabled bool, args ...string) state.State {
	t.Helper()

	store := newNode(t, nil)

	rendered := k8s.NewBootstrapManifestsConfig()
	rendered.TypedSpec().ProxyEnabled = enabled
	rendered.TypedSpec().ProxyArgs = args

	if err := store.Create(t.Context(), rendered); err != nil {
		t.Fatal(err)
	}

	return store
}

// TestFlag_IsJudgedByTheReleaseThatHadItLast: this includes flags that no table of the library has.
func TestFlag_IsJudgedByTheReleaseThatHadItLast(t *testing.T) {
	const address = "10.0.0.1"

	gone := func(name string, component cluster.Component) cluster.Removal {
		return cluster.Removal{Kind: removal.KindFlag, Name: name, Address: address, Component: component}
	}
	kubelet := func(args ...string) state.State { return newNode(t, map[string][]string{k8s.KubeletID: args}) }

	for name, test := range map[string]struct {
		from, to string
		node     state.State
		want     []cluster.Removal
	}{
		"gone":                      {"1.33.2", "1.34.2", kubelet("--register-schedulable=true"), []cluster.Removal{gone("register-schedulable", cluster.Kubelet)}},
		"with an underscore":        {"1.33.2", "1.34.2", kubelet("--register_schedulable"), []cluster.Removal{gone("register-schedulable", cluster.Kubelet)}},
		"there for another minor":   {"1.32.2", "1.33.2", kubelet("--register-schedulable=true"), nil},
		"gone before":               {"1.34.2", "1.35.2", kubelet("--register-schedulable=true"), nil},
		"in both tables, said once": {"1.36.2", "1.37.2", kubelet("--containerd=/x"), []cluster.Removal{gone("containerd", cluster.Kubelet)}},
		"kept by another library":   {"1.36.2", "1.37.2", kubelet("--housekeeping-interval=10s"), nil},
		"of a library, in words":    {"1.36.2", "1.37.2", kubelet("run", "-v=2", "containerd"), nil},
		"of another component":      {"1.33.2", "1.34.2", newNode(t, map[string][]string{k8s.SchedulerID: {"kube-scheduler", "--register-schedulable"}}), nil},
		// Talos sets it, and leaves it out from 1.33 on.
		"set by Talos": {"1.32.2", "1.33.2", newNode(t, map[string][]string{k8s.APIServerID: {"kube-apiserver", "--cloud-provider=external"}}), nil},
		"of kube-proxy": {
			"1.30.2", "1.31.2", rendering(t, true, "--proxy-port-range=0-0", "--v=2"), []cluster.Removal{gone("proxy-port-range", cluster.Proxy)},
		},
		"of a kube-proxy that is off": {"1.30.2", "1.31.2", rendering(t, false, "--proxy-port-range=0-0"), nil},
		"a gate of kube-proxy": {
			"1.34.2", "1.35.2", rendering(t, true, "--feature-gates=SizeMemoryBackedVolumes=true"),
			[]cluster.Removal{{Kind: removal.KindFeatureGate, Name: "SizeMemoryBackedVolumes", Address: address, Component: cluster.Proxy}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := parse(t, test.to)
			for index := range test.want {
				test.want[index].In = to
			}

			client := removal.New(nodes{address: test.node}, api(t, nil, 0))

			got, err := client.Removals(t.Context(), parse(t, test.from), to, []string{address}, nil)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

// TestReference_StaticPodsThatTheKubeletWillRefuseAreNamed: from 1.34 on, unless its gate is off, and from 1.37 on in any case.
func TestReference_StaticPodsThatTheKubeletWillRefuseAreNamed(t *testing.T) {
	const address = "10.0.0.9"

	// node runs a static pod of the machine configuration with the spec; the gate of its kubelet is set if it is not
	// empty.
	node := func(t *testing.T, spec map[string]any, gate string) state.State {
		t.Helper()

		var args []string
		if gate != "" {
			args = []string{"--feature-gates=PreventStaticPodAPIReferences=" + gate}
		}

		store := newNode(t, map[string][]string{k8s.KubeletID: args})

		pod := k8s.NewStaticPod(k8s.NamespaceName, "default-mirror")
		pod.TypedSpec().Pod = map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}

		if err := store.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}

		return store
	}
	container := func(fields map[string]any) map[string]any {
		fields["name"] = "mirror"

		return map[string]any{"containers": []any{fields}}
	}
	volume := func(source map[string]any) map[string]any {
		source["name"] = "data"

		return map[string]any{"containers": []any{map[string]any{"name": "mirror"}}, "volumes": []any{source}}
	}
	secret := volume(map[string]any{"secret": map[string]any{"secretName": "x"}})

	for name, test := range map[string]struct {
		from, to string
		spec     map[string]any
		gate     string
		refers   string
	}{
		"not yet":                        {"1.32.2", "1.33.2", secret, "", ""},
		"1.34 does":                      {"1.33.2", "1.34.2", secret, "", "secrets"},
		"1.34 does, the gate is on":      {"1.33.2", "1.34.2", secret, "true", "secrets"},
		"1.34 does not, the gate is off": {"1.33.2", "1.34.2", secret, "false", ""},
		"refused already":                {"1.35.2", "1.36.2", secret, "", ""},
		"1.37 has no gate":               {"1.36.2", "1.37.2", secret, "false", "secrets"},
		"a volume of the machine":        {"1.33.2", "1.34.2", volume(map[string]any{"hostPath": map[string]any{"path": "/x"}}), "", ""},
		"a config map":                   {"1.33.2", "1.34.2", volume(map[string]any{"configMap": map[string]any{"name": "x"}}), "", "configmaps"},
		"a claim":                        {"1.33.2", "1.34.2", volume(map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "x"}}), "", "persistentvolumeclaims"},
		"a token": {
			"1.33.2", "1.34.2",
			volume(map[string]any{"projected": map[string]any{"sources": []any{map[string]any{"downwardAPI": map[string]any{}}, map[string]any{"serviceAccountToken": map[string]any{"path": "x"}}}}}),
			"", "serviceaccounts",
		},
		"an account":        {"1.33.2", "1.34.2", map[string]any{"serviceAccountName": "default"}, "", "serviceaccounts"},
		"a pull secret":     {"1.33.2", "1.34.2", map[string]any{"imagePullSecrets": []any{map[string]any{"name": "x"}}}, "", "secrets"},
		"a variable":        {"1.33.2", "1.34.2", container(map[string]any{"env": []any{map[string]any{"name": "X", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "x", "key": "y"}}}}}), "", "secrets"},
		"a variable's text": {"1.33.2", "1.34.2", container(map[string]any{"env": []any{map[string]any{"name": "X", "value": "y"}}}), "", ""},
		"all variables":     {"1.33.2", "1.34.2", container(map[string]any{"envFrom": []any{map[string]any{"configMapRef": map[string]any{"name": "x"}}}}), "", "configmaps"},
	} {
		t.Run(name, func(t *testing.T) {
			to := parse(t, test.to)

			var want []cluster.Removal
			if test.refers != "" {
				want = []cluster.Removal{{
					Kind: removal.KindStaticPod, Name: "default-mirror", Address: address, Component: cluster.Kubelet, Refers: test.refers, In: to,
				}}
			}

			client := removal.New(nodes{address: node(t, test.spec, test.gate)}, api(t, nil, 0))

			got, err := client.Removals(t.Context(), parse(t, test.from), to, nil, []string{address})
			got = slices.DeleteFunc(got, func(r cluster.Removal) bool { return r.Kind == removal.KindFeatureGate })

			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}
