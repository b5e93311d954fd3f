// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	process "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// endToEndSpeed is slow enough for a provider that uses the real clock.
	endToEndSpeed = 60
	// endToEndPatience bounds make e2e, including builds; endToEndGrace bounds what it does after an interrupt.
	endToEndPatience = 10 * time.Minute
	endToEndGrace    = 30 * time.Second
)

// TestAccTheEndToEndRunUpgradesACluster runs the whole test for real machines against simulated ones. Only the
// arguments of make refer to the simulator.
func TestAccTheEndToEndRunUpgradesACluster(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{
		ClusterName: "e2e-simulated", ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 3, Speed: endToEndSpeed,
	})

	out := t.TempDir()
	said, err := endToEnd(t, s.Talosconfig(), "TALOS_TO="+talosTarget, "KUBERNETES_TO=1.35.0", "E2E_OUT="+out)

	if err != nil || !strings.Contains(said, "--- PASS: TestEndToEnd") || strings.Contains(said, "SKIP") {
		t.Fatalf("make e2e: %v\n%s", err, said)
	}

	s.wantUpgraded(talosTarget, map[string]int{"cp-0": 1, "worker-0": 1, "worker-1": 1})

	for name, node := range s.verdict().Nodes {
		if node.Kubernetes != "1.35.0" {
			t.Errorf("%s runs Kubernetes %s, want 1.35.0", name, node.Kubernetes)
		}
	}

	for _, name := range []string{"preflight.log", "plan.log", "apply.log", "plan-again.log"} {
		if content, err := os.ReadFile(filepath.Join(out, name)); err != nil || len(content) == 0 {
			t.Errorf("%s has %d bytes, %v; want what the command line said", name, len(content), err)
		}
	}
}

// TestAccTheEndToEndRunRefusesOtherClusters wants the run to refuse clusters that were not made for it, whatever the
// talosconfig calls them.
func TestAccTheEndToEndRunRefusesOtherClusters(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ClusterName: "prod", ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 3, Speed: endToEndSpeed})

	renamed := filepath.Join(t.TempDir(), "talosconfig")
	rename(t, s.Talosconfig(), renamed, "prod", "e2e-prod")

	for what, one := range map[string]struct {
		arguments []string
		says      string
	}{
		"by its context":          {[]string{s.Talosconfig()}, `the current context of ` + s.Talosconfig() + ` is "prod"`},
		"by what it calls itself": {[]string{renamed}, `the name of the cluster in the configuration of cp-0 is "prod"`},
		"by the context that is asked for": {
			[]string{renamed, "CONTEXT=prod"}, `the context of ` + renamed + ` that CONTEXT names is "prod"`,
		},
	} {
		said, err := endToEnd(t, one.arguments[0], append(one.arguments[1:], "TALOS_TO="+talosTarget, "E2E_OUT="+t.TempDir())...)
		if err == nil || !strings.Contains(said, one.says) || !strings.Contains(said, "want a name that starts with e2e-") {
			t.Errorf("%s: make e2e ended with %v, want it to say %q:\n%s", what, err, one.says, said)
		}
	}

	for _, event := range s.history() {
		switch event.Kind {
		case history.KindNode, history.KindRead, history.KindStage, history.KindEtcd, history.KindKubelet, history.KindComponent:
		default:
			if event.Detail["mutating"] != "false" {
				t.Errorf("it was refused, and yet somebody changed something: %s", event)
			}
		}
	}
}

// endToEnd runs make e2e as a person would, and returns its output.
func endToEnd(t *testing.T, talosconfig string, arguments ...string) (string, error) {
	t.Helper()

	root, err := toolchain.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), endToEndPatience)
	defer cancel()

	made := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory", "e2e", "TALOSCONFIG=" + talosconfig}, arguments...)...)
	made.Dir = root
	// This may itself run in a make, whose variables must not be inherited.
	made.Env = slices.DeleteFunc(process.Environment(os.Environ()), func(entry string) bool {
		return strings.HasPrefix(entry, "MAKE") || strings.HasPrefix(entry, "MFLAGS=")
	})

	process.Isolate(made, endToEndGrace)
	defer process.Reap(made)

	said, err := made.CombinedOutput()

	return string(said), err
}

// rename gives a context of a talosconfig a second name, and makes that the current context.
func rename(t *testing.T, from, to, old, name string) {
	t.Helper()

	config, err := clientconfig.Open(from)
	if err != nil {
		t.Fatal(err)
	}

	config.Contexts[name] = config.Contexts[old]
	config.Context = name

	if err := config.Save(to); err != nil {
		t.Fatal(err)
	}
}
