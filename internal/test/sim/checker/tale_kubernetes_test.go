// SPDX-License-Identifier: MPL-2.0

package checker_test

import "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"

const rpcApply = "/machine.MachineService/ApplyConfiguration"

// next is the version of Kubernetes that tales move to.
const next = "1.35.2"

const (
	kubelet   = "kubelet"
	apiServer = "kube-apiserver"
	manager   = "kube-controller-manager"
	scheduler = "kube-scheduler"
	proxy     = "kube-proxy"
)

// configure is a machine configuration that took effect.
func (t *tale) configure(node, changed, by string) {
	t.tell(node, history.KindConfig, "mode", "no-reboot", "code", "OK", "dry_run", "false", "changed", changed, "by", by)
}

func (t *tale) component(node, name, image, version, state string) {
	t.tell(node, history.KindComponent, "component", name, "image", image, "version", version, "config_version", "2", "state", state)
}

// restart takes a component from one image to another.
func (t *tale) restart(node, name, version string) {
	image := "registry.example/" + name + ":v" + version
	t.component(node, name, image, version, "stopped")
	t.component(node, name, image, version, "starting")
	t.component(node, name, image, version, "ready")
}

// move configures a component, as it should be, and waits until it is ready.
func (t *tale) move(node, name, version string) {
	t.look()
	t.configure(node, name, "client")
	t.rpc(node, rpcApply, "OK")
	t.restart(node, name, version)

	switch name {
	case scheduler:
		t.along(node)
	case kubelet:
		t.ready(node, true, version)
	}
}

// along restarts the API server, as Talos does below 1.14 with the scheduler.
func (t *tale) along(node string) {
	t.component(node, apiServer, "", "", "starting")
	t.component(node, apiServer, "", "", "ready")
}

// moveAll moves a component on several nodes.
func (t *tale) moveAll(name, version string, nodes ...string) {
	for _, node := range nodes {
		t.move(node, name, version)
	}
}

func controlPlaneNames() []string { return []string{"cp-0", "cp-1", "cp-2"} }

// serve moves everything but the kubelets.
func (t *tale) serve(version string) {
	for _, name := range []string{apiServer, manager, scheduler} {
		t.moveAll(name, version, controlPlaneNames()...)
	}

	for _, node := range controlPlaneNames() {
		t.look()
		t.configure(node, proxy, "client")
	}
}

// sync applies the manifests.
func (t *tale) sync(version string) {
	t.tell("", history.KindWrite, "verb", "patch", "resource", "daemonsets", "namespace", "kube-system",
		"name", "kube-proxy", "by", "client", "code", "200")

	for _, node := range t.names {
		t.component(node, proxy, "registry.example/kube-proxy:v"+version, version, "ready")
	}
}

func (t *tale) due(phase, run string) {
	t.tell("", history.KindJournal, "key", "manifests", "phase", phase, "run", run, "value", "", "by", "client")
}

// kubernetesRoll is an upgrade of Kubernetes, as it should be.
func kubernetesRoll() *tale {
	told := held()
	told.annotate("kubernetes-current", runsOn)
	told.annotate("kubernetes-progress", "0/5")
	told.annotate("kubernetes-status", "in-progress")
	told.due("due", "run-1")
	told.serve(next)
	told.moveAll(kubelet, next, told.names...)
	told.sync(next)
	told.due("", "run-1")
	told.annotate("kubernetes-progress", "5/5")
	told.annotate("kubernetes-current", next)
	told.annotate("kubernetes-status", "completed")
	told.release()

	return told
}
