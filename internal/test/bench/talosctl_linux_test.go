// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// raceSpeed is how many simulated seconds pass in a real one. Both programs keep the time of the
	// wall: at higher speeds their pauses, and the latency of this machine, are most of what is measured.
	raceSpeed = 10
	// realTime is the factor of the clock of a provider that keeps the time of the wall.
	realTime = 1
	// raceShare is how many of the workers may be out of service at a time.
	raceShare = "25%"
	// talosctlPatience bounds one command of talosctl, in real time.
	talosctlPatience = 15 * time.Minute
	// stopPatience is how long an interrupted command has to end.
	stopPatience = 10 * time.Second
)

// race is an upgrade that the provider and talosctl make, each of a cluster of its own that is like the other's.
type race struct {
	what                   string
	controlPlanes, workers int
	// resource is what the configuration of the provider asks for.
	resource string
	// byHand are the commands of talosctl, for each way to call it.
	byHand []way
}

// way is how a person would do it with talosctl.
type way struct {
	name string
	run  func(c talosctl)
}

func races() []race {
	const (
		talos      = "talos_version = \"" + harness.ToLifecycle + "\"\n"
		kubernetes = "kubernetes_version = \"" + toKubernetes + "\"\n"
		fleet      = "max_unavailable = \"" + raceShare + "\"\nkubernetes = { max_unavailable_kubelets = \"" + raceShare + "\" }\n"
	)

	batches := func(share int) func(talosctl) {
		return func(c talosctl) {
			c.upgradeTalos(share)
			c.upgradeKubernetes()
		}
	}

	return []race{
		{"Talos", 3, 2, talos, []way{{"node by node", func(c talosctl) { c.upgradeTalos(1) }}}},
		{"Kubernetes", 3, 2, kubernetes, []way{{"`upgrade-k8s`", talosctl.upgradeKubernetes}}},
		{"Talos, then Kubernetes", 3, 20, talos + kubernetes + fleet, []way{{"node by node", batches(1)}, {"5 workers at a time", batches(5)}}},
	}
}

// TestRollsAgainstTalosctl races the provider, as it ships and through Terraform, against talosctl, which is
// called as its documentation says: node by node, with its health check in between. BENCH_SOCKETS=1 enables it.
func TestRollsAgainstTalosctl(t *testing.T) {
	if os.Getenv("BENCH_SOCKETS") == "" {
		t.Skip("BENCH_SOCKETS is not set")
	}

	programs, err := toolchain.Talos(t.Context(), false, toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	lines := [][]string{{"nodes", "upgrade", "this provider", "`talosctl`", "took", "over this provider"}}

	for _, contest := range races() {
		t.Run(fmt.Sprintf("%d+%d %s", contest.controlPlanes, contest.workers, contest.what), func(t *testing.T) {
			ours := contest.provider(t)

			for _, by := range contest.byHand {
				theirs := contest.talosctl(t, programs.Talosctl, by)
				lines = append(lines, []string{
					fmt.Sprintf("%d+%d", contest.controlPlanes, contest.workers), contest.what, simulated(ours), by.name, simulated(theirs),
					strconv.FormatFloat(theirs.Seconds()/ours.Seconds(), 'f', 2, 64),
				})
				t.Log(lines[len(lines)-1])
			}
		})
	}

	text := markdown(lines) + fmt.Sprintf("\nWith `talosctl` %s, in simulated time, at %d times the speed of the wall.\n", programs.Version, raceSpeed)
	t.Log("\n" + text)

	if !t.Failed() {
		intoPage(t, "talosctl", text)
	}
}

// simulated is how long something took that took so long by the wall.
func simulated(took time.Duration) string { return fmt.Sprintf("%.0f s", took.Seconds()*raceSpeed) }

// options are those of the cluster of one of the two.
func (r race) options(t *testing.T) sim.Options {
	t.Helper()

	return sim.Options{
		ControlPlanes: r.controlPlanes, Workers: r.workers, Talos: harness.FromLifecycle, Kubernetes: harness.Kubernetes,
		Speed: raceSpeed, Seed: seed, Dir: t.TempDir(), Progress: os.Stderr,
	}
}

// arrived wants all nodes to run what was asked for.
func (r race) arrived(t *testing.T, simulator *sim.Simulator) {
	t.Helper()

	for _, node := range simulator.World.Nodes() {
		talos, kubernetes := harness.FromLifecycle, harness.Kubernetes
		if strings.Contains(r.resource, "talos_version") {
			talos = harness.ToLifecycle
		}

		if strings.Contains(r.resource, "kubernetes_version") {
			kubernetes = toKubernetes
		}

		if node.Talos != talos || node.Components.Kubelet != kubernetes {
			t.Errorf("%s runs Talos %s and the kubelet of %s, want %s and %s", node.Name, node.Talos, node.Components.Kubelet, talos, kubernetes)
		}
	}
}

func (r race) provider(t *testing.T) time.Duration {
	t.Helper()

	simulator, stop := simulate(t, r.options(t))
	defer stop()

	w := newWorkspace(t, realTime)
	w.write(t, "provider \"talosupgrade\" {\n  talosconfig_path = "+strconv.Quote(simulator.Talosconfig())+
		"\n}\n\nresource \"talosupgrade_cluster\" \"this\" {\n"+r.resource+"}\n")

	took := w.run(t, "apply", "-auto-approve", "-input=false")
	r.arrived(t, simulator)

	return took
}

func (r race) talosctl(t *testing.T, path string, by way) time.Duration {
	t.Helper()

	simulator, stop := simulate(t, r.options(t))
	defer stop()

	begun := time.Now()
	by.run(talosctl{t, path, simulator})
	took := time.Since(begun)
	r.arrived(t, simulator)

	return took
}

// talosctl is the command of Talos, with the talosconfig of a simulator.
type talosctl struct {
	*testing.T

	path      string
	simulator *sim.Simulator
}

// upgradeTalos upgrades the control planes one by one, and then so many workers at a time. Between two calls the
// cluster has to be healthy.
func (c talosctl) upgradeTalos(workers int) {
	c.Helper()

	for _, node := range c.addresses(model.ControlPlane) {
		c.upgrade(node)
	}

	for batch := range slices.Chunk(c.addresses(model.Worker), workers) {
		c.upgrade(batch...)
	}
}

func (c talosctl) upgrade(nodes ...string) {
	c.Helper()
	c.run(strings.Join(nodes, ","), "upgrade", "--image", "ghcr.io/siderolabs/installer:v"+harness.ToLifecycle, "--timeout", talosctlPatience.String())
	c.run(c.addresses(model.ControlPlane)[0], "health", "--server=false", "--wait-timeout", talosctlPatience.String())
}

func (c talosctl) upgradeKubernetes() {
	c.Helper()
	c.run(c.addresses(model.ControlPlane)[0], "upgrade-k8s", "--to", toKubernetes)
}

func (c talosctl) addresses(role model.Role) []string {
	var addresses []string

	for _, node := range c.simulator.World.NodesOf(role) {
		addresses = append(addresses, node.Address)
	}

	return addresses
}

func (c talosctl) run(nodes string, args ...string) {
	c.Helper()

	ctx, cancel := context.WithTimeout(c.Context(), talosctlPatience)
	defer cancel()

	command := exec.CommandContext(ctx, c.path, append([]string{"--talosconfig", c.simulator.Talosconfig(), "--nodes", nodes}, args...)...)
	command.Env = append(os.Environ(), "TALOSCONFIG=", "KUBECONFIG=", "HOME="+c.TempDir())
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopPatience

	if said, err := command.CombinedOutput(); err != nil {
		c.Fatalf("talosctl --nodes %s %s: %v\n%s", nodes, strings.Join(args, " "), err, said)
	}
}
