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

// configured returns a node whose kubelet has feature gates in its configuration file.
func configured(t *testing.T, args []string, gates map[string]any) state.State {
	t.Helper()

	store := newNode(t, nil)

	kubelet := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	kubelet.TypedSpec().Args = args
	kubelet.TypedSpec().Config = map[string]any{"featureGates": gates}

	if err := store.Create(t.Context(), kubelet); err != nil {
		t.Fatal(err)
	}

	return store
}

// TestGate_IsJudgedByTheReleaseThatTheUpgradeLeadsTo: gone, locked to another value, or unknown.
func TestGate_IsJudgedByTheReleaseThatTheUpgradeLeadsTo(t *testing.T) {
	const address = "10.0.0.1"

	yes := true
	gate := func(name string, component cluster.Component) cluster.Removal {
		return cluster.Removal{Kind: removal.KindFeatureGate, Name: name, Address: address, Component: component}
	}
	locked := func(found cluster.Removal) cluster.Removal {
		found.Locked = &yes

		return found
	}
	unknown := func(found cluster.Removal) cluster.Removal {
		found.Unknown = true

		return found
	}
	server := func(gates string) map[string][]string {
		return map[string][]string{k8s.APIServerID: {"kube-apiserver", "--feature-gates=" + gates}}
	}

	for name, test := range map[string]struct {
		from, to string
		node     state.State
		want     []cluster.Removal
	}{
		// Clusters crash-looped on it: siderolabs/talos#13480.
		"gone": {
			"1.34.2", "1.35.2", newNode(t, server("UserNamespacesPodSecurityStandards=true,UserNamespacesSupport=true")),
			[]cluster.Removal{gate("UserNamespacesPodSecurityStandards", cluster.APIServer)},
		},
		"gone one minor version later": {
			"1.33.2", "1.34.2", newNode(t, server("UserNamespacesPodSecurityStandards=true")), nil,
		},
		"locked to another value": {
			"1.35.2", "1.36.2", newNode(t, server("ImageVolume=false")), []cluster.Removal{locked(gate("ImageVolume", cluster.APIServer))},
		},
		"locked to the value": {"1.35.2", "1.36.2", newNode(t, server("ImageVolume=true")), nil},
		"unknown": {
			"1.35.2", "1.36.2", newNode(t, server("NeverHeardOf=true")), []cluster.Removal{unknown(gate("NeverHeardOf", cluster.APIServer))},
		},
		"not there yet": {
			"1.35.2", "1.36.2", newNode(t, server("InPlacePodVerticalScalingMemoryBackedVolumes=true")),
			[]cluster.Removal{unknown(gate("InPlacePodVerticalScalingMemoryBackedVolumes", cluster.APIServer))},
		},
		"in the configuration of a kubelet": {
			"1.34.2", "1.35.2", configured(t, nil, map[string]any{"SizeMemoryBackedVolumes": false, "AllAlpha": false}),
			[]cluster.Removal{gate("SizeMemoryBackedVolumes", cluster.Kubelet)},
		},
		"in the arguments of a kubelet, which count more than its configuration": {
			"1.35.2", "1.36.2", configured(t, []string{"--feature-gates=ImageVolume=true"}, map[string]any{"ImageVolume": false}), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := parse(t, test.to)
			for index := range test.want {
				test.want[index].In = to
			}

			client := removal.New(nodes{address: test.node}, api(t, nil, 0))

			got, err := client.Removals(t.Context(), parse(t, test.from), to, []string{address}, nil)
			if err != nil || !slices.EqualFunc(got, test.want, sameRemoval) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func sameRemoval(a, b cluster.Removal) bool {
	if a.Locked != nil && b.Locked != nil && *a.Locked == *b.Locked {
		a.Locked, b.Locked = nil, nil
	}

	return a == b
}
