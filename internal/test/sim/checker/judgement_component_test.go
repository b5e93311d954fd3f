// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// on returns a tale that begins with our lease held.
func on(do func(*tale)) func() *tale {
	return func() *tale {
		t := held()
		do(t)

		return t
	}
}

// restartJudgements are about what restarts when.
func restartJudgements() []judgement {
	three := []checker.Option{checker.MaxUnavailableKubelets(3)}
	kubelets := func(count int) func() *tale {
		return func() *tale {
			t := six()
			t.look()

			for index := range count {
				t.configure(t.names[3+index], kubelet, "client")
			}

			return t
		}
	}

	return []judgement{
		{name: "an upgrade of Kubernetes as it should be", tale: kubernetesRoll},
		{name: "S1: two API servers at a time", want: breaks(s1), tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", apiServer, "client")
			t.component("cp-0", apiServer, "a", runsOn, "stopped")
			t.look()
			t.configure("cp-1", apiServer, "client")
		})},
		{name: "S1: a second one before the first went away", want: breaks(s1), tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", apiServer, "client")
			t.look()
			t.configure("cp-1", apiServer, "client")
		})},
		{name: "S1: a scheduler while an API server restarts elsewhere", want: breaks(s1), tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", apiServer, "client")
			t.look()
			t.configure("cp-1", scheduler, "client")
		})},
		{name: "S1: a scheduler while an API server restarts with that of another node", want: breaks(s1), tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", scheduler, "client")
			t.restart("cp-0", scheduler, "1.34.9")
			t.look()
			t.configure("cp-1", scheduler, "client")
		})},
		{name: "S1: two kubelets of another minor version, each of which makes its API server anew", want: breaks(s1), tale: on(func(t *tale) {
			for _, node := range []string{"cp-0", "cp-1"} {
				t.look()
				t.configure(node, kubelet, "client")
				t.restart(node, kubelet, runsOn)
			}

			t.component("cp-0", apiServer, "a", runsOn, "stopped")
			t.component("cp-1", apiServer, "a", runsOn, "stopped")
		})},
		{name: "S1: two kubelets, the second one when the API server of the first is back", tale: on(func(t *tale) {
			for _, node := range []string{"cp-0", "cp-1"} {
				t.look()
				t.configure(node, kubelet, "client")
				t.restart(node, kubelet, runsOn)
				t.component(node, apiServer, "a", runsOn, "stopped")
				t.component(node, apiServer, "a", runsOn, "ready")
			}
		})},
		{name: "S1: an API server that fails by itself beside one that a kubelet makes anew", tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", kubelet, "client")
			t.restart("cp-0", kubelet, runsOn)
			t.component("cp-1", apiServer, "a", runsOn, "failed")
			t.component("cp-0", apiServer, "a", runsOn, "stopped")
		})},
		{name: "S1: an API server beside one that has long been away", want: breaks(s1), tale: on(func(t *tale) {
			t.component("cp-2", apiServer, "a", runsOn, "failed")
			t.wait(60)
			t.look()
			t.configure("cp-0", apiServer, "client")
		})},
		{name: "S1: an API server beside a control plane that is down", want: breaks(s1), tale: on(func(t *tale) {
			t.etcd("cp-2", "down")
			t.down("cp-2", "fault")
			t.wait(60)
			t.look()
			t.configure("cp-0", apiServer, "client")
		})},
		{name: "S1: a control plane goes down while a component restarts elsewhere", want: breaks(s1), tale: on(func(t *tale) {
			t.put("cp-1", after)
			t.look()
			t.configure("cp-0", manager, "client")
			t.goDown("cp-1")
		})},
		{name: "S1: an API server while a control plane goes down", want: breaks(s1), tale: on(func(t *tale) {
			t.put("cp-1", after)
			t.goDown("cp-1")
			t.look()
			t.configure("cp-0", apiServer, "client")
		})},
		{name: "S1: one that went away a moment ago cannot be known", tale: on(func(t *tale) {
			t.look()
			t.component("cp-2", apiServer, "a", runsOn, "failed")
			t.configure("cp-0", apiServer, "client")
		})},
		{name: "S1: after a boot the API server is back with its node", tale: on(func(t *tale) {
			t.put("cp-1", after)
			t.goDown("cp-1")
			t.comeBack("cp-1", after)
			t.wait(60)
			t.look()
			t.configure("cp-0", apiServer, "client")
		})},
		{name: "S1: a configuration that somebody else took back restarts nothing of ours", tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", apiServer, "client")
			t.configure("cp-0", apiServer, "fault")
			t.look()
			t.configure("cp-1", apiServer, "client")
		})},
		{name: "S3: an API server without a look at its node", want: breaks(s3), tale: on(func(t *tale) {
			t.move("cp-0", apiServer, next)
			t.configure("cp-1", apiServer, "client")
		})},
		{name: "S3: who reads a configuration has not looked at the node", want: breaks(s3), tale: on(func(t *tale) {
			t.move("cp-0", apiServer, next)
			t.tell("cp-1", history.KindRead, "what", "config")
			t.configure("cp-1", apiServer, "client")
		})},
		{name: "S3: looked at before the component before was ready", want: breaks(s3), tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", apiServer, "client")
			t.look()
			t.restart("cp-0", apiServer, next)
			t.configure("cp-1", apiServer, "client")
		})},
		{name: "S3: a node is taken down on what was seen before a component restarted", want: breaks(s3), tale: on(func(t *tale) {
			t.put("worker-0", after)
			t.move("cp-0", apiServer, next)
			t.rpc("worker-0", rpcReboot, "OK")
		})},
		{name: "S10: three kubelets of three", options: three, tale: kubelets(3)},
		{name: "S10: four kubelets of three", want: breaks(s10), options: three, tale: kubelets(4)},
		{name: "S10: two kubelets of one", want: breaks(s10), tale: kubelets(2)},
		{name: "S10: the next kubelet when the first is ready", tale: func() *tale {
			t := kubelets(1)()
			t.restart("worker-0", kubelet, runsOn)
			t.look()
			t.configure("worker-1", kubelet, "client")

			return t
		}},
		{name: "S10: the next kubelet although the node is not ready with the first", want: breaks(s10), tale: func() *tale {
			t := held()
			t.serve(next)
			t.look()
			t.configure("worker-0", kubelet, "client")
			t.rpc("worker-0", rpcApply, "OK")
			t.ready("worker-0", false, next)
			t.restart("worker-0", kubelet, next)
			t.look()
			t.configure("worker-1", kubelet, "client")

			return t
		}},
		{name: "S8: a component that is switched off is none", tale: func() *tale {
			t := held()
			for _, node := range controlPlaneNames() {
				t.component(node, scheduler, "", "", "stopped")
			}

			for _, name := range []string{apiServer, manager} {
				t.moveAll(name, next, controlPlaneNames()...)
			}

			t.moveAll(kubelet, next, t.names...)
			t.annotate("kubernetes-current", next)
			t.annotate("kubernetes-progress", "5/5")
			t.annotate("kubernetes-status", "completed")

			return t
		}},
		{name: "S10: two kubelets of control planes", want: breaks(s10), options: three, tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", kubelet, "client")
			t.look()
			t.configure("cp-1", kubelet, "client")
		})},
		{name: "S10: a kubelet before that of the canary", want: breaks(s10), options: []checker.Option{checker.Canary("worker-1")}, tale: on(func(t *tale) {
			t.serve(next)
			t.move("worker-0", kubelet, next)
		})},
		{name: "canary: its kubelet first, and the rest after it", options: []checker.Option{checker.Canary("worker-1")}, tale: on(func(t *tale) {
			t.serve(next)
			t.moveAll(kubelet, next, "worker-1", "cp-0", "worker-0")
		})},
	}
}

// componentJudgements are about which version runs where, and who asked for it.
func componentJudgements() []judgement {
	hold := []checker.Option{checker.Held("worker-1")}

	return []judgement{
		{name: "S4: a held node is configured", want: breaks(s4), options: hold, tale: on(func(t *tale) {
			t.look()
			t.configure("worker-1", kubelet, "client")
		})},
		{name: "S4: a configuration that changes nothing", want: breaks(s4), tale: on(func(t *tale) {
			t.look()
			t.configure("worker-1", "", "client")
		})},
		{name: "S4: a component is configured to what it runs", want: breaks(s4), tale: on(func(t *tale) {
			t.serve(next)
			t.move("worker-0", kubelet, next)
			t.move("worker-0", kubelet, next)
		})},
		{name: "S4: another repository is another image", tale: on(func(t *tale) {
			t.serve(next)
			t.move("worker-0", kubelet, next)
			t.look()
			t.configure("worker-0", kubelet, "client")
			t.component("worker-0", kubelet, "mirror.example/kubelet:v"+next, next, "ready")
		})},
		{name: "held: what others configure there", options: hold, tale: on(func(t *tale) { t.configure("worker-1", kubelet, "other") })},
		{name: "S5: a kubelet newer than the API servers because of us", want: breaks(s5), tale: on(func(t *tale) {
			t.moveAll(apiServer, next, "cp-0", "cp-1")
			t.move("worker-0", kubelet, next)
		})},
		{name: "S5: a scheduler newer than an API server", want: breaks(s5), tale: on(func(t *tale) {
			t.moveAll(apiServer, next, "cp-0", "cp-1")
			t.move("cp-0", scheduler, next)
		})},
		{name: "S5: a kube-proxy newer than an API server", want: breaks(s5), tale: on(func(t *tale) { t.sync(next) })},
		{name: "S5: newer by a patch", tale: on(func(t *tale) { t.move("cp-0", scheduler, "1.34.9") })},
		{name: "S5: a component goes down", want: breaks(s5), tale: on(func(t *tale) { t.move("cp-0", apiServer, "1.34.1") })},
		{name: "S5: a component skips a minor", want: breaks(s5), tale: on(func(t *tale) { t.move("cp-0", apiServer, "1.36.0") })},
		{name: "S5: what a person sets back is theirs", tale: on(func(t *tale) {
			t.configure("worker-0", kubelet, "other")
			t.restart("worker-0", kubelet, "1.33.0")
		})},
		{name: "S5: components that move with Talos and return with it", tale: on(func(t *tale) {
			for _, node := range controlPlaneNames() {
				t.put(node, after)
				t.goDown(node)
				t.boot(node, after, "1.34.9", "upgrade")
				t.component(node, apiServer, "a", "1.34.9", "ready")
				t.etcd(node, "healthy")
				t.ready(node, true, "1.34.9")
			}

			t.down("cp-0", "machine")
			t.boot("cp-0", before, runsOn, "fallback")
			t.component("cp-0", apiServer, "b", runsOn, "ready")
		})},
		{name: "S6: a component that Talos does not support", want: breaks(s6), tale: func() *tale {
			t := beginOn(3, 2, "1.12.6", "1.35.0")
			t.acquire("run-1")
			t.move("cp-0", apiServer, "1.36.0")

			return t
		}},
		{name: "S7: a configuration while another one holds the lease", want: breaks(s7), tale: on(func(t *tale) {
			t.tell("", history.KindLease, "holder", "intruder", "action", "acquire", "by", "other")
			t.look()
			t.configure("cp-0", apiServer, "client")
		})},
		{name: "S7: a call of a run that does not hold it", want: breaks(s7), tale: on(func(t *tale) {
			t.tell("cp-0", history.KindRPC, "method", rpcApply, "role", "os:admin", "code", "OK", "mutating", "true", "client", "run-2")
		})},
		{name: "S7: another run notes that manifests are due", want: breaks(s7), tale: on(func(t *tale) { t.due("due", "run-2") })},
		{name: "S12: a configuration without a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.look()
			t.configure("cp-0", apiServer, "client")

			return t
		}},
		{name: "S12: manifests without a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.tell("", history.KindWrite, "verb", "patch", "resource", "daemonsets", "namespace", "kube-system",
				"name", "kube-proxy", "by", "client", "code", "200")

			return t
		}},
		{name: "S12: what was tried, refused, or written by others", tale: func() *tale {
			t := begin(3, 2)
			t.tell("cp-0", history.KindConfig, "mode", "no-reboot", "code", "OK", "dry_run", "true", "changed", apiServer, "by", "client")
			t.rpc("cp-0", rpcApply, "OK")
			t.tell("cp-0", history.KindConfig, "mode", "no-reboot", "code", "InvalidArgument", "dry_run", "false", "changed", apiServer, "by", "client")
			t.rpc("cp-0", rpcApply, "InvalidArgument")
			t.configure("cp-0", apiServer, "other")

			return t
		}},
	}
}

// kubernetesClaimJudgements are about what annotations say about Kubernetes.
func kubernetesClaimJudgements() []judgement {
	synced := []checker.Option{checker.SyncsManifests()}
	behind := func(key, value string) func() *tale {
		return on(func(t *tale) {
			t.serve(next)
			t.moveAll(kubelet, next, "cp-0", "cp-1", "cp-2", "worker-0")
			t.annotate(key, value)
		})
	}
	unsynced := func(key, value string) func() *tale {
		return on(func(t *tale) {
			t.serve(next)
			t.moveAll(kubelet, next, t.names...)
			t.annotate(key, value)
		})
	}

	return []judgement{
		{name: "S8: a current version above a kubelet", want: breaks(s8), tale: behind("kubernetes-current", next)},
		{name: "S8: one node too many for Kubernetes", want: breaks(s8), tale: behind("kubernetes-progress", "5/5")},
		{name: "S8: as many nodes as there are", tale: behind("kubernetes-progress", "4/5")},
		{name: "S8: completed with a kubelet behind", want: breaks(s8), tale: behind("kubernetes-status", "completed")},
		{name: "S8: progress of Kubernetes that is none", want: breaks(s8), tale: behind("kubernetes-progress", "nearly")},
		{name: "S8: completed with kube-proxy behind", want: breaks(s8), options: synced, tale: unsynced("kubernetes-status", "completed")},
		{name: "S8: a current version above kube-proxy", want: breaks(s8), options: synced, tale: unsynced("kubernetes-current", next)},
		{name: "S8: kube-proxy behind is not in the count", options: synced, tale: unsynced("kubernetes-progress", "5/5")},
		{name: "S8: kube-proxy that nobody syncs", tale: unsynced("kubernetes-status", "completed")},
		{name: "S8: some pods of kube-proxy behind", want: breaks(s8), tale: on(func(t *tale) {
			t.serve(next)
			t.moveAll(kubelet, next, t.names...)
			t.component("cp-0", proxy, "a", next, "ready")
			t.annotate("kubernetes-status", "completed")
		})},
		{name: "S8: completed while a sync is due", want: breaks(s8), tale: on(func(t *tale) {
			t.due("due", "run-1")
			t.annotate("kubernetes-status", "completed")
		})},
		{name: "S8: completed while a component restarts", want: breaks(s8), tale: on(func(t *tale) {
			t.look()
			t.configure("cp-0", apiServer, "client")
			t.annotate("kubernetes-status", "completed")
		})},
		{name: "S8: completed before anything was configured", want: breaks(s8), tale: on(func(t *tale) {
			t.annotate("kubernetes-status", "completed")
			t.look()
			t.configure("cp-0", apiServer, "client")
		})},
		{name: "S8: a held node is not spoken of", options: []checker.Option{checker.Held("worker-1")}, tale: behind("kubernetes-status", "completed")},
	}
}
