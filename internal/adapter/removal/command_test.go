// SPDX-License-Identifier: MPL-2.0

package removal_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/removal"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestCommand_RepeatedFlagsAddUp(t *testing.T) {
	const address = "10.0.0.1"

	for name, test := range map[string]struct {
		from, to string
		command  []string
		want     []string
	}{
		"gates in the second flag":    {"1.32.4", "1.33.1", []string{"--feature-gates=AllAlpha=true", "--v=2", "--feature-gates=CPUManager=true,AppArmor=true"}, []string{"AppArmor", "CPUManager"}},
		"a gate in each of three":     {"1.32.4", "1.33.1", []string{"--feature-gates=AppArmor=true", "--feature-gates=", "--feature-gates=CPUManager=true"}, []string{"AppArmor", "CPUManager"}},
		"a value of its own":          {"1.32.4", "1.33.1", []string{"--feature-gates", "AllAlpha=true, CPUManager=false", "--cloud-config=/x"}, []string{"cloud-config", "CPUManager"}},
		"a flag without a value":      {"1.32.4", "1.33.1", []string{"--feature-gates=CPUManager=true", "--feature-gates"}, []string{"CPUManager"}},
		"an underscore":               {"1.32.4", "1.33.1", []string{"--feature_gates=CPUManager=true"}, []string{"CPUManager"}},
		"a flag that begins the same": {"1.32.4", "1.33.1", []string{"--feature-gates-file=CPUManager=true", "--feature-gates=AllAlpha=true"}, nil},
		"plugins in the second flag":  {"1.29.0", "1.30.0", []string{"--enable-admission-plugins=NodeRestriction", "--enable-admission-plugins=SecurityContextDeny"}, []string{"SecurityContextDeny"}},
		"nothing":                     {"1.32.4", "1.33.1", []string{"--v=2"}, nil},
	} {
		node := newNode(t, map[string][]string{k8s.APIServerID: append([]string{"kube-apiserver"}, test.command...)})
		client := removal.New(nodes{address: node}, api(t, nil, 0))

		found, err := client.Removals(t.Context(), parse(t, test.from), parse(t, test.to), []string{address}, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}

		var got []string
		for _, item := range found {
			got = append(got, item.Name)
		}

		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestCommand_InvalidStaticPodIsNamed(t *testing.T) {
	node := newNode(t, nil)

	pod := k8s.NewStaticPod(k8s.NamespaceName, k8s.SchedulerID)
	pod.TypedSpec().Pod = map[string]any{"spec": map[string]any{}}

	if err := node.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}

	_, err := removal.New(nodes{"10.0.0.1": node}, &rest.Config{}).Removals(t.Context(), parse(t, "1.32.4"), parse(t, "1.33.1"), []string{"10.0.0.1"}, nil)
	if !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "10.0.0.1") || !strings.Contains(err.Error(), k8s.SchedulerID) {
		t.Errorf("%v, want a refusal that names the node and the pod", err)
	}
}
