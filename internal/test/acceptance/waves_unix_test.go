// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// tools returns a directory with programs under the names by which scripts call them.
func tools(t *testing.T, programs map[string]string) string {
	t.Helper()

	dir := t.TempDir()

	for name, path := range programs {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// before returns PATH with the directory in front.
func before(dir string) string {
	return "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")
}

// installable returns a configuration of the command line with which init installs this test binary as the provider.
func installable(t *testing.T) string {
	t.Helper()

	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	mirror := t.TempDir()

	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		dir := filepath.Join(mirror, host, "vitistack", "talosupgrade", "9.9.9", runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.Symlink(binary, filepath.Join(dir, "terraform-provider-talosupgrade_v9.9.9")); err != nil {
			t.Fatal(err)
		}
	}

	config := filepath.Join(mirror, "cli.tfrc")
	if err := os.WriteFile(config, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror), 0o600); err != nil {
		t.Fatal(err)
	}

	return config
}

// contexts returns one kubeconfig for several clusters, with the context names that talosctl uses.
func contexts(t *testing.T, clusters map[string]*simulated) string {
	t.Helper()

	merged := clientcmdapi.NewConfig()

	for name, s := range clusters {
		config, err := clientcmd.LoadFromFile(s.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}

		current := config.Contexts[config.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
		merged.Contexts["admin@"+name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}

	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, file); err != nil {
		t.Fatal(err)
	}

	return file
}

// asServiceAccount returns a kubeconfig of the management cluster for the ServiceAccount of the guide, with the
// permissions of the guide.
func (s *simulated) asServiceAccount(k *kubectl) string {
	s.t.Helper()

	k.says("kubectl create -f " + filepath.Join(pipelines(), "in-cluster", "access.yaml"))

	return k.with(s.ManagementKubeconfig(), "upgrades", "talosupgrade")
}

// with returns the kubeconfig with a token of the ServiceAccount instead of its user.
func (k *kubectl) with(kubeconfig, namespace, account string) string {
	k.t.Helper()

	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		k.t.Fatal(err)
	}

	token := strings.TrimSpace(k.says("kubectl -n " + namespace + " create token " + account))
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{account: {Token: token}}
	config.Contexts[config.CurrentContext].AuthInfo = account

	file := filepath.Join(k.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		k.t.Fatal(err)
	}

	return file
}

const canaryCluster, otherCluster = "edge-tromso", "edge-oslo"

// waves is a directory with the example of a state for each cluster, in which the script can run.
type waves struct {
	*workspace

	canary, other *simulated
	path          string
}

func newWaves(t *testing.T) *waves {
	t.Helper()

	small := sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Pods: 1, Speed: cancelSpeed}
	canary, other := small, small
	canary.ClusterName, canary.Management = canaryCluster, true
	other.ClusterName, other.Seed = otherCluster, 2

	w := &waves{workspace: newWorkspace(t), canary: start(t, canary), other: start(t, other)}

	if err := os.CopyFS(w.dir, os.DirFS(filepath.Join("..", "..", "..", "examples", "guides", "many-clusters", "one-state-each"))); err != nil {
		t.Fatal(err)
	}

	values, err := os.ReadFile(filepath.Join(w.dir, otherCluster+".tfvars"))
	if err != nil {
		t.Fatal(err)
	}

	values = []byte(strings.ReplaceAll(string(values), otherCluster, canaryCluster))
	if err := os.WriteFile(filepath.Join(w.dir, canaryCluster+".tfvars"), values, 0o600); err != nil {
		t.Fatal(err)
	}

	k := newKubectl(t, w.canary.ManagementKubeconfig())

	found, err := k.prepare(t.Context(), "command -v kubectl").Output()
	if err != nil {
		t.Fatal(err)
	}

	w.path = tools(t, map[string]string{"terraform": w.command, "kubectl": strings.TrimSpace(string(found))})
	w.env = append(w.env, before(w.path), "TF_CLI_CONFIG_FILE="+installable(t), "TF_IN_AUTOMATION=1", "HOME="+t.TempDir(), "CHECKS=1",
		fmt.Sprintf("%s=%d", serveVariable, cancelSpeed), "TALOSCONFIG="+together(t, w.canary, w.other),
		"KUBECONFIG="+contexts(t, map[string]*simulated{canaryCluster: w.canary, otherCluster: w.other}),
		"KUBE_CONFIG_PATH="+w.canary.asServiceAccount(k))

	// init writes the lock file, which is in the repository of a real user.
	w.run("init", "-backend=false", "-no-color").mustSucceed(0)

	w.command = "/bin/sh"

	return w
}

// script runs the script to its end.
func (w *waves) script(env ...string) result {
	w.t.Helper()

	all := w.env
	w.env = append(w.env[:len(w.env):len(w.env)], env...)

	defer func() { w.env = all }()

	return w.run("waves.sh", canaryCluster, otherCluster)
}

// unlock removes the lock of the cluster's state, as the guide says.
func (w *waves) unlock(cluster string) {
	w.t.Helper()

	config, err := w.canary.ManagementConfig()
	if err != nil {
		w.t.Fatal(err)
	}

	management, err := client.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}

	leases := management.CoordinationV1().Leases("upgrades")
	if err := leases.Delete(w.t.Context(), "lock-tfstate-default-"+cluster, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// mustStop fails the test unless the script failed with the text, and the cluster of the second wave is unchanged.
func (w *waves) mustStop(r result, text string) {
	w.t.Helper()

	if r.exit == 0 || !strings.Contains(r.output, text) {
		w.t.Fatalf("exit code %d, want an error that says %q\n%s", r.exit, text, r.output)
	}

	w.other.unchanged()
}

// TestAccWaves_CanaryFirstAndKilledAnywhere: the other clusters must not be touched before the canary is upgraded and
// healthy. Whatever ends the script, the next run has to go on.
func TestAccWaves_CanaryFirstAndKilledAnywhere(t *testing.T) {
	full(t)

	w := newWaves(t)

	// The canary cannot be upgraded.
	w.canary.faults(`faults: [{node: cp-0, step: etcd, effect: alarm-nospace}]`)
	w.canary.settle()
	w.mustStop(w.script(), "etcd-alarms")
	w.canary.faults("")

	// The canary is being upgraded, and the job is cancelled.
	w.canary.forget()

	cancelled := w.background("waves.sh", canaryCluster, otherCluster)
	w.canary.await("the first node going down", turn(history.KindDown, "", ""))
	cancelled.signal(syscall.SIGTERM)
	w.mustStop(cancelled.wait(), "cancelled")
	cancelled.providersGone()

	// The canary is upgraded, and its check fails.
	sick := tools(t, nil)
	if err := os.WriteFile(filepath.Join(sick, "kubectl"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	w.mustStop(w.script(before(sick+string(os.PathListSeparator)+w.path)), "== "+canaryCluster+": check")
	w.canary.wantUpgraded(talosTarget, nil)

	// The check succeeds, and the job dies in the middle of the second wave.
	w.other.forget()

	killed := w.background("waves.sh", canaryCluster, otherCluster)
	w.other.await("the install", installed)
	killed.kill()

	if locked := w.script("LOCK_TIMEOUT=0s"); locked.exit == 0 || !strings.Contains(locked.output, "Error acquiring the state lock") {
		t.Fatalf("exit code %d, want an error about the lock of the state\n%s", locked.exit, locked.output)
	}

	w.unlock(otherCluster)
	w.script().mustSucceed(0)

	for _, s := range []*simulated{w.canary, w.other} {
		s.wantUpgraded(talosTarget, nil)
		s.times(once(1, 1))
		s.wantKubernetes(kubernetesTarget)
	}

	if again := w.script().mustSucceed(0); strings.Contains(again.output, "Modifying") {
		t.Errorf("there was something left to do:\n%s", again.output)
	}
}
