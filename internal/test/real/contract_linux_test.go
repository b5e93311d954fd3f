// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machineryclient "github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/contract"
)

const (
	// agent is a user agent that is not the provider's, so that what this writes is not attributed to the provider.
	agent = "talosupgrade-real"
	// podImage is the image of the Pods of the clauses.
	podImage = "registry.k8s.io/pause:3.10"
	// podPatience bounds the wait for what the cluster does with Pods and budgets.
	podPatience = 3 * time.Minute
)

// adapters opens what the provider would open with the same talosconfig.
func (w *world) adapters(ctx context.Context, t *testing.T) (*talosapi.Client, *kubeapi.Client) {
	t.Helper()

	content, err := os.ReadFile(w.talosconfig)
	if err != nil {
		t.Fatal(err)
	}

	config, err := talosapi.ParseConfig(content, "")
	if err != nil {
		t.Fatal(err)
	}

	talos, err := talosapi.New(config, talosapi.Options{UserAgent: agent})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = talos.Close() })

	kubeconfig, err := talos.Kubeconfig(ctx)
	if err != nil {
		t.Fatal(err)
	}

	kube, err := kubeapi.New(kubeconfig, "", kubeapi.Options{UserAgent: agent})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(kube.Close)

	id, err := talos.ClusterID(ctx)
	if err != nil || id == "" {
		t.Fatalf("the cluster has the ID %q, %v", id, err)
	}

	kube.Identify(id)

	return talos, kube
}

// refused are the clauses about Talos that do not hold in container mode, each with the call that is refused there.
// They are the clauses that can be checked on a single machine.
var refused = map[string]func(ctx context.Context, api *machineryclient.Client) error{
	"no installer runs": func(ctx context.Context, api *machineryclient.Client) error {
		stream, err := api.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
			Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM},
			Source:     &machineapi.InstallArtifactsSource{},
		})
		if err != nil {
			return err
		}

		_, err = stream.Recv()

		return err
	},
}

// holdsTalos checks real Talos against the contract of the simulated one.
func (w *world) holdsTalos(ctx context.Context, t *testing.T) {
	talos, _ := w.adapters(ctx, t)

	machines, err := contract.FromKubernetes(ctx, w.client(t))
	if err != nil {
		t.Fatal(err)
	}

	plain, err := machineryclient.New(ctx, machineryclient.WithConfigFromFile(w.talosconfig))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = plain.Close() })

	// The components of a control plane may be restarting after the only API server was away.
	w.until(ctx, t, "all machines are settled", w.patience(), func(ctx context.Context) error {
		for _, m := range w.machines {
			found, err := talos.Machine(ctx, m.address.String(), nil, cluster.Everything)
			if err != nil {
				return err
			}

			if !found.Settled() || len(found.Unmet) > 0 {
				return fmt.Errorf("%s is not: %s, %v", m.name, found.Stage, found.Unmet)
			}
		}

		return nil
	})

	left := 0

	for _, clause := range contract.TalosCases() {
		t.Run(clause.Name, func(t *testing.T) {
			call, without := refused[clause.Name]
			if !without {
				clause.Run(t, contract.Machines{Adapter: talos, Known: machines})

				return
			}

			left++

			for _, m := range w.machines {
				if !m.emulated {
					mustBeRefused(ctx, t, m, func(ctx context.Context) error { return call(ctx, plain) })

					continue
				}

				one := slices.DeleteFunc(slices.Clone(machines), func(known contract.Machine) bool { return known.Name != m.name })
				clause.Run(t, contract.Machines{Adapter: talos, Known: one})
			}
		})
	}

	if left != len(refused) {
		t.Errorf("%d clauses are left out, want %d: one of the names is none of a clause", left, len(refused))
	}
}

// mustBeRefused fails the test unless container mode refuses a call. It logs the refusal.
func mustBeRefused(ctx context.Context, t *testing.T, m *machine, call func(ctx context.Context) error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(machineryclient.WithNode(ctx, m.address.String()), callPatience)
	defer cancel()

	err := call(ctx)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not supported in container mode") {
		t.Errorf("%s: %v: this is no reason to leave the clause out", m.name, err)

		return
	}

	t.Logf("left out on %s: %v", m.name, err)
}

// holdsKubernetes checks real Kubernetes on real Talos against the contract of the simulated one.
func (w *world) holdsKubernetes(ctx context.Context, t *testing.T) {
	talos, kube := w.adapters(ctx, t)
	client := w.client(t)

	var addresses [][]string
	for _, m := range w.machines {
		addresses = append(addresses, []string{m.address.String()})
	}

	machines, err := contract.FromTalos(ctx, talos, addresses)
	if err != nil {
		t.Fatal(err)
	}

	id, err := talos.ClusterID(ctx)
	if err != nil {
		t.Fatal(err)
	}

	w.runEverywhere(ctx, t, client)

	live := &contract.Live{Adapter: kube, Other: client, ID: id, Known: machines, Image: podImage, Patience: podPatience}
	live.Sweep(t)

	contract.Test(t, func(t *testing.T) contract.Fixture { return live.Open(t) })

	for _, clause := range contract.WireCases() {
		t.Run(clause.Name, func(t *testing.T) { clause.Run(t, live.Open(t)) })
	}
}

// runEverywhere runs a DaemonSet on every node, as a CNI does on other clusters. It is removed when the test ends.
func (w *world) runEverywhere(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()

	labels := map[string]string{"app": "everywhere"}
	sets := client.AppsV1().DaemonSets(metav1.NamespaceSystem)

	set, err := sets.Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "everywhere"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:  []corev1.Container{{Name: "pause", Image: podImage}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := sets.Delete(context.WithoutCancel(ctx), set.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	w.until(ctx, t, "something runs on every node", podPatience, func(ctx context.Context) error {
		found, err := sets.Get(ctx, set.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		if int(found.Status.NumberReady) != len(w.machines) {
			return errors.New("it does not yet")
		}

		return nil
	})
}
