// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"fmt"
	"strconv"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	before = "1.13.2"
	after  = "1.13.4"
	runsOn = "1.34.2"
)

const (
	rpcInstall = "/machine.LifecycleService/Upgrade"
	rpcLegacy  = "/machine.MachineService/Upgrade"
	rpcReboot  = "/machine.MachineService/Reboot"
	rpcPull    = "/machine.ImageService/Pull"
)

// tale is a history that a test composes.
type tale struct {
	events []history.Event
	now    float64
	boots  int
	names  []string
	// kubelet is the version that the kubelets run.
	kubelet string
}

// tell adds an event a second after the previous one.
func (t *tale) tell(node string, kind history.Kind, pairs ...string) {
	detail := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		detail[pairs[i]] = pairs[i+1]
	}

	t.now++
	t.events = append(t.events, history.Event{Sim: t.now, Node: node, Kind: kind, Detail: detail})
}

func (t *tale) wait(seconds float64) { t.now += seconds }

func (t *tale) introduce(name, role, talos, kubelet string) {
	t.names = append(t.names, name)
	t.tell(name, history.KindNode, "role", role, "talos", talos, "kubelet", kubelet, "kubernetes", kubelet,
		"boot_id", "boot-0", "schematic", "", "etcd_id", "e-"+name)
}

// begin introduces a cluster.
func begin(controlPlanes, workers int) *tale { return beginOn(controlPlanes, workers, before, runsOn) }

func beginOn(controlPlanes, workers int, talos, kubelet string) *tale {
	t := &tale{kubelet: kubelet}
	for i := range controlPlanes {
		t.introduce(fmt.Sprintf("cp-%d", i), "controlplane", talos, kubelet)
	}

	for i := range workers {
		t.introduce(fmt.Sprintf("worker-%d", i), "worker", talos, kubelet)
	}

	return t
}

func (t *tale) acquire(holder string) {
	t.tell("", history.KindLease, "holder", holder, "action", "acquire", "by", "client")
}

func (t *tale) release() {
	t.tell("", history.KindLease, "holder", "", "action", "release", "by", "client")
}

// look observes everything.
func (t *tale) look() {
	for _, name := range t.names {
		t.tell(name, history.KindRead, "what", "machine")

		if name[0] == 'c' {
			t.tell(name, history.KindRead, "what", "etcd")
		}
	}

	t.tell("", history.KindRead, "what", "nodes")
}

// told is the result of an observation of a machine that began a second ago.
func (t *tale) told(node, bootID, talos, schematic, platform string) {
	t.tell(node, history.KindTold, "client", "run-1", "boot_id", bootID, "talos", talos, "schematic", schematic, "platform", platform,
		"began", strconv.FormatFloat(t.now, 'f', -1, 64))
}

func (t *tale) rpc(node, method, code string) {
	t.tell(node, history.KindRPC, "method", method, "role", "os:admin", "code", code, "mutating", "true")
}

func (t *tale) cordon(node string, on bool, by string) {
	t.tell(node, history.KindCordon, "unschedulable", strconv.FormatBool(on), "by", by)
}

func (t *tale) journal(node, phase, target, run string) {
	value := ""
	if phase != "" {
		value = fmt.Sprintf(`{"phase":%q,"target":%q,"run":%q}`, phase, target, run)
	}

	t.tell(node, history.KindJournal, "key", "uuid-of-"+node, "phase", phase, "run", run, "value", value, "by", "client")
}

func (t *tale) install(node, talos string, exit int) {
	t.tell(node, history.KindInstall, "talos", talos, "schematic", "", "slot", "B", "exit", strconv.Itoa(exit), "by", "client")
}

func (t *tale) down(node, by string) { t.tell(node, history.KindDown, "by", by) }

func (t *tale) boot(node, talos, kubelet, cause string) {
	t.boots++
	t.tell(node, history.KindBoot, "boot_id", fmt.Sprintf("boot-%d", t.boots), "talos", talos, "schematic", "", "platform", "",
		"kubelet", kubelet, "cause", cause, "fallback", strconv.FormatBool(cause == "fallback"))
}

// bootOn boots a system that is built for a platform.
func (t *tale) bootOn(node, talos, platform, cause string) {
	t.boot(node, talos, t.kubelet, cause)
	t.events[len(t.events)-1].Detail["platform"] = platform
}

func (t *tale) bootWith(node, talos, extensions, schematic, cause string) {
	t.boot(node, talos, t.kubelet, cause)

	detail := t.events[len(t.events)-1].Detail
	detail["extensions"], detail["schematic"] = extensions, schematic
}

func (t *tale) stage(node, from, to string) {
	t.tell(node, history.KindStage, "from", from, "to", to, "ready", "true")
}

func (t *tale) etcd(node, state string) {
	t.tell(node, history.KindEtcd, "state", state, "member", "e-"+node)
}

func (t *tale) ready(node string, ready bool, kubelet string) {
	t.tell(node, history.KindKubelet, "ready", strconv.FormatBool(ready), "version", kubelet)
}

func (t *tale) annotate(key, value string) {
	t.tell("", history.KindAnnotation, "object", "ConfigMap/kube-system/talosupgrade", "key", key, "value", value, "by", "client")
}

// goDown takes a node down with a call of ours.
func (t *tale) goDown(node string) {
	t.look()
	t.stage(node, "running", "rebooting")
	t.rpc(node, rpcReboot, "OK")
	t.ready(node, false, t.kubelet)

	if node[0] == 'c' {
		t.etcd(node, "down")
	}

	t.down(node, "client")
}

// comeBack brings a node back with a version.
func (t *tale) comeBack(node, talos string) {
	t.boot(node, talos, t.kubelet, "upgrade")

	if node[0] == 'c' {
		t.etcd(node, "healthy")
	}

	t.stage(node, "booting", "running")
	t.ready(node, true, t.kubelet)
}

// put installs a version on a node.
func (t *tale) put(node, talos string) {
	t.look()
	t.journal(node, "intent", talos, "run-1")
	t.install(node, talos, 0)
	t.rpc(node, rpcInstall, "OK")
	t.journal(node, "installed", talos, "run-1")
}

// turn is the whole upgrade of a node without a violation.
func (t *tale) turn(node, talos string) {
	t.look()
	t.cordon(node, true, "client")
	t.put(node, talos)
	t.goDown(node)
	t.comeBack(node, talos)
	t.cordon(node, false, "client")
	t.journal(node, "", "", "run-1")
}

const rpcApply = "/machine.MachineService/ApplyConfiguration"

// next is the Kubernetes version that tales upgrade to.
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

// move configures a component without a violation, and waits until it is ready.
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

// along restarts the API server, as Talos before 1.14 does with the scheduler.
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

// serve moves all components except the kubelets.
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

// kubernetesRoll is an upgrade of Kubernetes without a violation.
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
