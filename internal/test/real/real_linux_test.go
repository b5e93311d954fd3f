// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// nextTalos is the release to which Talos is asked to upgrade. In container mode it does not have to exist.
const nextTalos = "1.13.10"

// TestReal runs one cluster from its first boot on. If a part fails, the run ends: each part begins where the one
// before it ends.
func TestReal(t *testing.T) {
	need(t)

	ctx := t.Context()
	w := openWorld(ctx, t, containers)

	for _, part := range []struct {
		name string
		run  func(ctx context.Context, t *testing.T)
	}{
		{"the machines boot", w.boots},
		{"the provider sees what there is", w.observes},
		{"the provider sees it without discovery", w.doesWithoutDiscovery},
		{"Talos keeps the contract", w.holdsTalos},
		{"Kubernetes keeps the contract", w.holdsKubernetes},
		{"Kubernetes is upgraded by a patch release, in an apply that is killed and in the next", w.upgrades},
		{"nobody but an administrator changes anything", w.holdsToRoles},
		{"a node is drained", w.drains},
		{"Talos refuses an upgrade in container mode", w.isRefused},
		{"a worker that was removed is still in discovery", w.losesAWorker},
	} {
		w.say("%s", part.name)

		if !t.Run(part.name, func(t *testing.T) { part.run(ctx, t) }) {
			t.FailNow()
		}
	}
}

func (w *world) boots(ctx context.Context, t *testing.T) {
	first := w.machines[0].address.String()

	for _, m := range w.machines {
		w.until(ctx, t, m.name+" answers", w.patience(), func(ctx context.Context) error {
			_, err := w.talosctl(ctx, "--nodes", m.address.String(), "version")

			return err
		})
	}

	w.until(ctx, t, "etcd is bootstrapped", w.patience(), func(ctx context.Context) error {
		said, err := w.talosctl(ctx, "--nodes", first, "bootstrap")
		if err != nil && strings.Contains(said, "AlreadyExists") {
			return nil
		}

		return err
	})

	w.until(ctx, t, saidKubeconfig, w.patience(), func(ctx context.Context) error {
		_, err := w.talosctl(ctx, "--nodes", first, "kubeconfig", w.kubeconfig(), "--force", "--merge=false")

		return err
	})

	client := w.client(t)

	w.until(ctx, t, "all nodes are ready", w.patience(), func(ctx context.Context) error { return w.ready(ctx, client) })
	w.mustBeHealthy(ctx, t)
}

// ready returns an error unless every machine is a node that is ready.
func (w *world) ready(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}

	if len(nodes.Items) != len(w.machines) {
		return fmt.Errorf("there are %d nodes, want %d", len(nodes.Items), len(w.machines))
	}

	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return fmt.Errorf("%s is not ready: %s", node.Name, condition.Message)
			}
		}
	}

	return nil
}

// observed is what the tests read from the data source of the current versions.
type observed struct {
	ID    string `json:"id"`
	Nodes map[string]struct {
		Ready bool `json:"ready"`
	} `json:"nodes"`
	Talos      struct{ Lowest string } `json:"talos"`
	Kubernetes struct{ Lowest string } `json:"kubernetes"`
}

func (w *world) observes(ctx context.Context, t *testing.T) {
	f := w.terraform(t, "data \"talosupgrade_current_versions\" \"this\" {}\n\noutput \"it\" {\n  value = data.talosupgrade_current_versions.this\n}\n")
	f.apply(ctx, t).must(nothingToDo)

	var found observed

	f.outputs(ctx, t, &found)

	if want := strings.TrimPrefix(w.programs.Talos.Version, "v"); found.Talos.Lowest != want {
		t.Errorf("the lowest Talos is %q, want %q", found.Talos.Lowest, want)
	}

	if want := kubernetesVersions[0].String(); found.Kubernetes.Lowest != want {
		t.Errorf("the lowest Kubernetes is %q, want %q", found.Kubernetes.Lowest, want)
	}

	for _, m := range w.machines {
		if node, there := found.Nodes[m.name]; !there || !node.Ready {
			t.Errorf("of %s it says %+v (there: %t), want that it is ready", m.name, node, there)
		}
	}
}

// upgrades kills the CLI and the provider once the API server is configured to run the next release, and applies
// again.
func (w *world) upgrades(ctx context.Context, t *testing.T) {
	target := kubernetesVersions[1]
	saved := filepath.Join(t.TempDir(), "etcd")
	resource := fmt.Sprintf(
		"resource \"talosupgrade_cluster\" \"this\" {\n  kubernetes_version = %q\n  etcd_snapshot = { directory = %s }\n}\n", target, quote(saved))
	f := w.terraform(t, resource)

	f.plan(ctx, t).must(somethingToDo, target.String())

	apply := f.begin(ctx, t)

	w.until(ctx, t, "the API server is told to run the next release", w.applyPatience(), func(ctx context.Context) error {
		said, err := w.talosctl(ctx, "--nodes", w.machines[0].address.String(), "get", "apiserverconfigs", "--output", "yaml")
		if err != nil {
			return err
		}

		if !strings.Contains(said, ":"+target.Tag()) {
			return errors.New("it is told to run another one")
		}

		return nil
	})

	apply.kill()

	// The run that was killed got the kubeconfig from Talos.
	f.write(t, "  talosconfig_path = "+quote(w.talosconfig)+"\n  kubeconfig_path  = "+quote(w.kubeconfig())+"\n", resource)

	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	w.mustRun(ctx, t, target)
	w.mustHaveTold(ctx, t, target)
	w.mustBeASnapshot(ctx, t, saved)
	w.mustBeHealthy(ctx, t)
}

// mustRun checks the versions that the kubelets report, and the images of the control plane's Pods.
func (w *world) mustRun(ctx context.Context, t *testing.T, wanted version.Version) {
	t.Helper()

	client := w.client(t)

	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, node := range nodes.Items {
		if node.Status.NodeInfo.KubeletVersion != wanted.Tag() || node.Spec.Unschedulable {
			t.Errorf("%s runs kubelet %s (cordoned: %t), want %s", node.Name, node.Status.NodeInfo.KubeletVersion, node.Spec.Unschedulable, wanted.Tag())
		}
	}

	// A controller manager that loses its lease while the API server is away ends, and is restarted.
	w.until(ctx, t, "the control plane runs "+wanted.Tag(), 2*time.Minute, func(ctx context.Context) error {
		return mustServe(ctx, t, client, wanted)
	})

	said, err := client.Discovery().ServerVersion()
	if err != nil || said.GitVersion != wanted.Tag() {
		t.Errorf("the API server calls itself %v (%v), want %s", said, err, wanted.Tag())
	}
}

// mustServe fails the test unless each component of the control plane has one Pod with the release. It returns an
// error if one is not ready.
func mustServe(ctx context.Context, t *testing.T, client kubernetes.Interface, wanted version.Version) error {
	t.Helper()

	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=" + component})
		if err != nil {
			return err
		}

		if len(pods.Items) != 1 {
			t.Fatalf("there are %d pods of %s, want 1", len(pods.Items), component)
		}

		for _, status := range pods.Items[0].Status.ContainerStatuses {
			if !strings.HasSuffix(status.Image, "/"+component+":"+wanted.Tag()) {
				t.Fatalf("%s runs %s, want %s", component, status.Image, wanted.Tag())
			}

			if !status.Ready {
				return fmt.Errorf("%s is not ready: %+v", component, status.State)
			}
		}
	}

	return nil
}

// mustHaveTold checks the annotations and Events of a completed upgrade.
func (w *world) mustHaveTold(ctx context.Context, t *testing.T, target version.Version) {
	t.Helper()

	client := w.client(t)

	object, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "talosupgrade", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for key, want := range map[string]string{
		"kubernetes-status":   "completed",
		"kubernetes-current":  target.String(),
		"kubernetes-progress": fmt.Sprintf("%d/%d", len(w.machines), len(w.machines)),
		"talos-status":        "idle",
		"talos-current":       strings.TrimPrefix(w.programs.Talos.Version, "v"),
	} {
		if found := object.Annotations["upgrade.vitistack.io/"+key]; found != want {
			t.Errorf("the annotation %s is %q, want %q", key, found, want)
		}
	}

	w.until(ctx, t, "there are Events of the upgrade", time.Minute, func(ctx context.Context) error {
		events, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		reasons := map[string]int{}

		for _, event := range events.Items {
			if event.Source.Component == "talosupgrade" || event.ReportingController == "talosupgrade" {
				reasons[event.Reason]++
			}
		}

		for _, reason := range []string{"UpgradeStarted", "ComponentUpgraded", "UpgradeCompleted"} {
			if reasons[reason] == 0 {
				return fmt.Errorf("no Event has the reason %s: %v", reason, reasons)
			}
		}

		return nil
	})

	w.mustHaveNoJournal(ctx, t)
}

// mustBeASnapshot checks the file with etcd's own tool.
func (w *world) mustBeASnapshot(ctx context.Context, t *testing.T, dir string) {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("in %s are the snapshots %v (%v), want one", dir, files, err)
	}

	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()

	said, err := w.call(ctx, w.programs.Talos.Etcdutl, "snapshot", "status", files[0])
	if err != nil {
		t.Fatal(err)
	}

	w.say("etcdutl says of the snapshot: %s", strings.TrimSpace(said))

	restored := filepath.Join(t.TempDir(), "restored")
	if _, err := w.call(ctx, w.programs.Talos.Etcdutl, "snapshot", "restore", files[0], "--data-dir", restored); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(restored, "member", "snap", "db")); err != nil {
		t.Error(err)
	}
}

// isRefused requests what container mode does not support: the machines refuse it, and the plan already has to say
// so. Nothing may happen to any machine.
func (w *world) isRefused(ctx context.Context, t *testing.T) {
	for _, m := range w.machines {
		for _, call := range [][]string{{"rollback"}, {"upgrade", "--legacy", "--wait=false", "--image", "ghcr.io/siderolabs/installer:v" + nextTalos}} {
			said, err := w.talosctl(ctx, append([]string{"--nodes", m.address.String()}, call...)...)
			if err == nil || !strings.Contains(said, "method is not supported in container mode") {
				t.Errorf("%s answers a call to %s with %v, want a refusal because of container mode:\n%s", m.name, call[0], err, said)
			}
		}
	}

	f := w.terraform(t, fmt.Sprintf("resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = %q\n}\n", nextTalos))

	for _, run := range []result{f.plan(ctx, t), f.apply(ctx, t)} {
		run.must(failed, "Talos has no upgrade where it runs in a container", "worker", "control-plane", "leave talos_version out")
	}

	w.mustBeAsBefore(ctx, t)

	w.mustBeHealthy(ctx, t)
}

// mustHaveNoJournal fails the test if the journal has an entry of a machine. What is not about a machine stays: the
// format, the last holder, the last snapshot.
func (w *world) mustHaveNoJournal(ctx context.Context, t *testing.T) {
	t.Helper()

	journal, err := w.client(t).CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "talosupgrade-journal", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{"format", "holder", "etcd-snapshot"} {
		delete(journal.Data, key)
	}

	if len(journal.Data) > 0 {
		t.Errorf("the journal has %v, want no machine", journal.Data)
	}
}
