// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const tenant = "tenant-a"

// live is a simulated cluster in real time, with the objects of operators in a
// management cluster.
type live struct {
	*sim.Simulator

	t       *testing.T
	objects *operator.Live
}

// upgraded returns the options of players that sync the manifests of the cluster.
func (l live) upgraded(name string) operator.Options {
	l.t.Helper()

	config, err := l.Config()
	if err != nil {
		l.t.Fatal(err)
	}

	sync, err := operator.LiveSync(config, l.World)
	if err != nil {
		l.t.Fatal(err)
	}

	return operator.Options{World: l.World, Objects: l.objects, Namespace: tenant, Name: name, Sync: sync}
}

// until waits in real time until a field of an object has the value.
func (l live) until(of cluster.Reference, value string, path ...string) {
	l.t.Helper()

	const patience = 2 * time.Minute

	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		object, err := l.objects.Get(l.t.Context(), of)
		if err != nil {
			l.t.Fatal(err)
		}

		got := field(object, path...)
		if got == value {
			return
		}

		if time.Now().After(deadline) {
			l.t.Fatalf("%s of %s is %q, want %q: %v", strings.Join(path, "."), of, got, value, object)
		}
	}
}

// field returns a string in an object.
func field(object map[string]any, path ...string) string {
	last := len(path) - 1
	for _, key := range path[:last] {
		object, _ = object[key].(map[string]any)
	}

	value, _ := object[path[last]].(string)

	return value
}

// proxyImage returns the image of the DaemonSet of kube-proxy in the upgraded cluster.
func (l live) proxyImage() string {
	l.t.Helper()

	config, err := l.Config()
	if err != nil {
		l.t.Fatal(err)
	}

	own, err := operator.NewLive(config)
	if err != nil {
		l.t.Fatal(err)
	}

	object, err := own.Get(l.t.Context(), cluster.Reference{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: "kube-proxy"})
	if err != nil {
		l.t.Fatal(err)
	}

	template, _ := object["spec"].(map[string]any)["template"].(map[string]any)
	containers, _ := template["spec"].(map[string]any)["containers"].([]any)
	first, _ := containers[0].(map[string]any)

	return field(first, "image")
}

// TestLive_PlayersUpgradeOnARealAPIServer: one operator after the other upgrades the cluster, which the history
// does not attribute to the provider.
func TestLive_PlayersUpgradeOnARealAPIServer(t *testing.T) {
	toolchain.NeedKubernetes(t)

	const speed = 120

	simulator, err := sim.Start(t.Context(), sim.Options{
		ControlPlanes: 1, Workers: 1, Talos: fromTalos, Kubernetes: fromKubernetes, Dir: t.TempDir(), Management: true, Speed: speed,
	})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := simulator.Stop(); err != nil {
			t.Error(err)
		}
	}()

	config, err := simulator.ManagementConfig()
	if err != nil {
		t.Fatal(err)
	}

	objects, err := operator.NewLive(config)
	if err != nil {
		t.Fatal(err)
	}

	if err := objects.CreateNamespace(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}

	l := live{Simulator: simulator, t: t, objects: objects}
	l.vitistack()
	l.declarative()

	verdict, err := simulator.Verdict(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if len(verdict.Violations) > 0 {
		t.Errorf("the work of an operator is taken for ours: %+v", verdict.Violations)
	}
}

func (l live) vitistack() {
	l.t.Helper()

	kubeconfig, err := os.ReadFile(l.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}

	of, err := operator.SeedVitistack(l.t.Context(), l.objects, l.World, operator.Seed{
		Namespace: tenant, Name: "prod", ClusterID: "c-1", WithV: true, Kubeconfig: kubeconfig,
		Annotations: map[string]string{"talos-target": toTalos, "kubernetes-target": toKubernetes},
	})
	if err != nil {
		l.t.Fatal(err)
	}

	stop := operator.PlayVitistack(l.t.Context(), l.upgraded("prod"))
	defer stop()

	l.until(of, toTalos, "metadata", "annotations", prefix+"talos-current")
	l.until(of, toKubernetes, "metadata", "annotations", prefix+"kubernetes-current")
	l.until(of, "Kubernetes upgrade completed: now running "+toKubernetes, "status", "message")
	l.until(of, "", "metadata", "annotations", prefix+"talos-target")

	secret, err := l.objects.SecretOf(l.t.Context(), tenant, "cluster.vitistack.io/cluster-id", "c-1")
	if err != nil {
		l.t.Fatal(err)
	}

	for key, want := range map[string]string{
		"talos_version": "v" + toTalos, "kubernetes_version": "v" + toKubernetes, "upgrade_in_progress": "false", "kube.config": string(kubeconfig),
	} {
		if got := string(secret.Data[key]); got != want {
			l.t.Errorf("%s in the Secret has %d bytes, want %d", key, len(got), len(want))
		}
	}

	l.runs(toTalos, toKubernetes)
}

func (l live) declarative() {
	l.t.Helper()

	of, err := operator.SeedDeclarative(l.t.Context(), l.objects, l.World, operator.Seed{Namespace: tenant, Name: "declared"})
	if err != nil {
		l.t.Fatal(err)
	}

	stop := operator.PlayDeclarative(l.t.Context(), l.upgraded("declared"))
	defer stop()

	const talos, kubernetes = "1.13.5", "1.35.2"

	err = l.objects.Patch(l.t.Context(), of, "", map[string]any{"spec": map[string]any{"version": "v" + talos, "kubeVersion": "v" + kubernetes}})
	if err != nil {
		l.t.Fatal(err)
	}

	l.until(of, "v"+kubernetes, "status", "observedKubeVersion")
	l.until(of, "Ready", "status", "state")

	for _, state := range l.World.Nodes() {
		l.until(named(operator.MachineKind, state.Name), "v"+talos, "status", "observedVersion")
	}

	l.runs(talos, kubernetes)
}

// runs asserts what the machines run.
func (l live) runs(talos, kubernetes string) {
	l.t.Helper()

	for _, state := range l.World.Nodes() {
		if state.Talos != talos || state.Components.Kubelet != kubernetes || state.Components.Proxy != kubernetes {
			l.t.Errorf("%s runs Talos %s and %+v, want %s and %s", state.Name, state.Talos, state.Components, talos, kubernetes)
		}
	}

	if image := l.proxyImage(); !strings.HasSuffix(image, ":v"+kubernetes) {
		l.t.Errorf("the DaemonSet of kube-proxy has %s, want %s", image, kubernetes)
	}
}
