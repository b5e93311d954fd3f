// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccPreflight checks what an upgrade would run into, without an upgrade.
func TestAccPreflight(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	w := newWorkspace(t)

	answer := w.ask(s, `talos_version = "1.13.4"`)
	answer.want("roles", "passed", "none", "")
	answer.want("etcd-quorum", "passed", "none", "")
	answer.want("time-sync", "passed", "none", "")
	answer.want("lock", "passed", "none", "")

	// On other systems the boot ID is not known.
	if runtime.GOOS == "linux" {
		answer.want("own-node", "passed", "none", "")
	}

	answer.want("single-control-plane", "warning", "warning", "cp-0", "control plane")

	if !answer.Passed {
		t.Errorf("a cluster that is well does not pass: %s", answer.Summary)
	}

	// Findings of each severity, and one that could not be determined.
	s.faults(`faults: [
  {node: cp-0, step: etcd, effect: alarm-nospace},
  {node: worker-0, step: clock, effect: unsynced},
  {node: worker-1, step: disk, effect: unreadable},
  {node: worker-1, step: drain, effect: blocked-by-budget},
]`)
	s.settle()

	answer = w.ask(s, `talos_version = "1.13.4"`)
	answer.want("etcd-alarms", "failed", "error", "cp-0", "NOSPACE")
	answer.want("time-sync", "failed", "error", "worker-0")
	answer.want("disk-space", "unknown", "warning", "worker-1")
	answer.want("drain", "failed", "error", "worker-1", "workload/blocks-drain-of-worker-1")

	if answer.Passed || !strings.Contains(answer.Summary, "etcd-alarms") {
		t.Errorf("passed is %t: %s", answer.Passed, answer.Summary)
	}

	// A check that the resource would skip is skipped here as well.
	answer = w.ask(s, "talos_version = \"1.13.4\"\npreflight = { skip = [\"drain\"] }")
	answer.want("drain", "skipped", "warning", "worker-1")
	answer.want("etcd-alarms", "failed", "error", "cp-0")

	// Targets that are not possible are an answer as well.
	answer = w.ask(s, `talos_version = "1.12.6"`)
	answer.want("versions", "failed", "error", "cp-0", "1.12.6")

	s.unchanged()
}

// TestAccPreflightInACheck runs the example of the documentation: a check that fails has to be a warning.
func TestAccPreflightInACheck(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n")

	example, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "data-sources", "talosupgrade_preflight", "data-source.tf"))
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(w.dir, "example.tf"), example, 0o600); err != nil {
		t.Fatal(err)
	}

	w.apply().mustSucceed(0).mustNotWarn("would stop an apply")

	s.faults(`faults: [{node: worker-0, step: clock, effect: unsynced}]`)

	w.apply().mustSucceed(0).mustWarn("would stop an apply: time-sync")

	listed, isList := w.outputs()["in_the_way"].([]any)
	if !isList || len(listed) != 1 || at(listed[0], "check") != "time-sync" || at(listed[0], "node") != "worker-0" {
		t.Errorf("in the way is %v", listed)
	}

	s.unchanged()
}

// TestAccPreflightOfTheResource: a finding has to be a warning of the plan and an error of the apply, and a warning
// of both if the check is skipped.
func TestAccPreflightOfTheResource(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	s.faults(`faults: [{node: cp-0, step: etcd, effect: big}, {node: worker-0, step: disk, effect: unreadable}]`)

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	planned := w.plan().mustSucceed(2)
	planned.mustWarn("etcd-db-size")
	planned.mustWarn("disk-space")

	// A disk that cannot be read stops no run if the kubelet reports no pressure.
	w.apply().mustFail("etcd-db-size", "cp-0")
	s.unchanged()

	w.write(use(s), "talos_version = \"1.13.4\"\npreflight = { skip = [\"etcd-db-size\"] }")
	w.plan().mustSucceed(2).mustWarn("check etcd-db-size, skipped")

	applied := w.apply().mustSucceed(0)
	applied.mustWarn("check etcd-db-size, skipped")
	s.wantUpgraded(talosTarget, once(1, 1))
}

// TestAccConfigurationThatTheNextTalosRefuses: it has to be a warning of the plan, since the same apply may bring
// another configuration, and an error of the apply. If the check is skipped, one API server may be lost and no more.
func TestAccConfigurationThatTheNextTalosRefuses(t *testing.T) {
	full(t)

	const (
		target = `talos_version = "1.14.1"`
		said   = "tls-min-version"
	)

	s := start(t, sim.Options{ControlPlanes: 3, Workers: 1, Talos: talosModern, Kubernetes: "1.35.2"})

	s.overwrite("cp-1", strings.Replace(s.configs()["cp-1"], "  apiServer:\n", "  apiServer:\n    extraArgs:\n      tls-min-version: VersionTLS13\n", 1))

	w := newWorkspace(t)
	w.write(use(s), target)
	w.plan().mustSucceed(2).mustWarn(said)
	w.apply().mustFail("Nothing was touched.", "cp-1", said, "check configuration")

	answer := w.ask(s, target)
	answer.want("configuration", "failed", "error", "cp-1", said)
	s.unchanged()

	w.write(use(s), target+"\npreflight = { skip = [\"configuration\"] }\nnode_timeout = \"15m\"")
	w.apply().mustFail("cp-1", "kube-apiserver")

	s.wantRunning(talosModern, "cp-2")
}

// TestAccIPVSThatTheNextTalosDoesNotLoad: the configuration has no kernel modules, and the plan has to say so.
func TestAccIPVSThatTheNextTalosDoesNotLoad(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: "1.14.1", Kubernetes: "1.35.2"})
	s.overwrite("cp-0", strings.Replace(s.configs()["cp-0"], "  proxy:\n", "  proxy:\n    mode: ipvs\n", 1))

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.15.0"`)
	w.plan().mustSucceed(2).mustWarn("IPVS mode")
	w.apply().mustFail("Nothing was touched.", "machine.kernel.modules", "worker-0, cp-0", "check configuration")
	s.unchanged()
}

// TestAccSecureBootIsKept: an image that does not boot in the same way as the node has to be refused, wherever it is
// configured.
func TestAccSecureBootIsKept(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Schematic: schematic, SecureBoot: true})
	w := newWorkspace(t)

	for title, arguments := range map[string]string{
		"for all nodes": `installer_image = "factory.talos.dev/metal-installer/` + schematic + `"`,
		"for one":       `node_overrides = { "worker-0" = { installer_image = "factory.talos.dev/metal-installer/` + schematic + `" } }`,
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.write(use(s), "talos_version = \"1.13.4\"\n"+arguments)
			w.plan().mustFail("secure boot", "worker-0")

			answer := w.ask(s, "talos_version = \"1.13.4\"\n"+arguments)
			answer.want("secure-boot", "failed", "error", "worker-0", "with secure boot")
		})
	}

	w.t = t

	s.unchanged()
	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}
