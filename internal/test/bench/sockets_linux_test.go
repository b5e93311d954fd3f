// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// speed is how many simulated seconds pass in a real second, slower is that for many nodes: the limits of a roll
	// are in simulated time, and the requests of all nodes take real time.
	speed, slower = 60, 10
	many          = 500
	// rollPatience bounds one run of the CLI.
	rollPatience = 30 * time.Minute
	// samples is how often something is measured that takes less than a second.
	samples = 5
)

// socketFigures are the results of one roll through the CLI.
type socketFigures struct {
	roll

	plan       time.Duration
	provider   usage
	talosCalls int64
	answered   int64
	violations int
	emptyPlan  time.Duration
}

// TestRollsThroughTheCLI measures what the process of the provider uses, over sockets and with a real API server.
// BENCH_SOCKETS=1 enables it.
func TestRollsThroughTheCLI(t *testing.T) {
	if os.Getenv("BENCH_SOCKETS") == "" {
		t.Skip("BENCH_SOCKETS is not set")
	}

	var all []socketFigures

	for _, wanted := range rolls(t) {
		if wanted.half == halfLegacy {
			continue
		}

		t.Run(wanted.String(), func(t *testing.T) {
			measured := measureSockets(t, wanted)
			all = append(all, measured)

			t.Log("\n" + socketTable([]socketFigures{measured}))
		})
	}

	text := socketTable(all) + fmt.Sprintf("\nFrom its start to its schema the provider takes %d ms.\n", schemaTime(t).Milliseconds())
	t.Log("\n" + text)
	intoPage(t, "sockets", text)
}

// socketTable returns the figures in Markdown.
func socketTable(all []socketFigures) string {
	const kibibyte, mebibyte = 10, 20

	lines := [][]string{{
		"nodes", "half", "CPU of the provider", "its peak memory", "Talos requests a node", "KiB from the API server a node",
		"refresh and plan", "over starting the provider",
	}}

	for _, f := range all {
		nodes := int64(f.controlPlanes + f.workers)
		lines = append(lines, []string{
			fmt.Sprintf("%d+%d", f.controlPlanes, f.workers), f.half,
			fmt.Sprintf("%.1f s", f.provider.CPU.Seconds()), fmt.Sprintf("%d MiB", f.provider.Peak>>mebibyte), strconv.FormatInt(f.talosCalls/nodes, 10),
			strconv.FormatInt(f.answered/nodes>>kibibyte, 10), fmt.Sprintf("%d ms", f.plan.Milliseconds()),
			fmt.Sprintf("%d ms", f.emptyPlan.Milliseconds()),
		})
	}

	return markdown(lines)
}

func measureSockets(t *testing.T, wanted roll) socketFigures {
	t.Helper()

	measured := socketFigures{roll: wanted}
	options := sim.Options{
		ControlPlanes: wanted.controlPlanes, Workers: wanted.workers, Talos: harness.FromLifecycle, Kubernetes: harness.Kubernetes,
		Speed: float64(wanted.speed()), Seed: seed, Dir: t.TempDir(), Progress: os.Stderr,
	}
	// If the host is too slow for the speed, the simulated time means nothing.
	const patience = "\ntimeouts = { create = \"48h\" }"

	resource := fmt.Sprintf("talos_version = %q\nmax_unavailable = %q", harness.ToLifecycle, share) + patience

	if wanted.half == halfKubernetes {
		// The DaemonSet of kube-proxy has one Pod unavailable at a time, however many there are.
		resource = fmt.Sprintf("kubernetes_version = %q\nkubernetes = { max_unavailable_kubelets = %q, manifests = { sync = %t } }",
			toKubernetes, share, wanted.workers < many) + patience
	}

	simulator, stop := simulate(t, options)
	defer stop()

	var calls atomic.Int64

	simulator.OnEvent(func(event history.Event) {
		if event.Kind == history.KindRPC {
			calls.Add(1)
		}
	})

	w := newWorkspace(t, wanted.speed())
	w.write(t, "provider \"talosupgrade\" {\n  talosconfig_path = "+strconv.Quote(simulator.Talosconfig())+
		"\n}\n\nresource \"talosupgrade_cluster\" \"this\" {\n"+resource+"\n}\n")

	sent := simulator.Answered()

	w.run(t, "apply", "-auto-approve", "-input=false")

	measured.talosCalls, measured.answered = calls.Load(), simulator.Answered()-sent
	measured.provider = usages(t, w.usage)

	measured.plan = w.fastest(t, "plan", "-input=false", "-detailed-exitcode")

	most := shareOf(t, wanted)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()

	verdict, err := simulator.Verdict(ctx, checker.MaxUnavailable(most), checker.MaxUnavailableKubelets(most))
	if err != nil {
		t.Fatal(err)
	}

	measured.violations = len(verdict.Violations)
	for _, violation := range verdict.Violations {
		t.Errorf("%+v", violation)
	}

	// A plan without requests to a cluster takes only the starts of the provider.
	w.write(t, "data \"talosupgrade_compatibility\" \"this\" {}\n")
	w.remove(t)
	measured.emptyPlan = measured.plan - w.fastest(t, "plan", "-input=false")

	return measured
}

// simulate starts a cluster. Whoever measures stops it, so that none stands beside the next one.
func simulate(t *testing.T, options sim.Options) (simulator *sim.Simulator, stop func()) {
	t.Helper()

	simulator, err := sim.Start(context.WithoutCancel(t.Context()), options)
	if err != nil {
		t.Fatal(err)
	}

	return simulator, func() {
		if err := simulator.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// speed returns how many simulated seconds pass in a real second.
func (r roll) speed() int {
	if r.workers >= many {
		return slower
	}

	return speed
}

func shareOf(t *testing.T, wanted roll) int {
	t.Helper()

	_, request := wanted.setup(t)

	return request.Policy.MaxUnavailable.Of(wanted.workers)
}

// workspace is a directory in which the CLI runs with this test binary as the provider.
type workspace struct {
	dir, usage, command string
	env                 []string
}

func newWorkspace(t *testing.T, speed int) *workspace {
	t.Helper()

	found, err := toolchain.Terraform(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	plugins := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(plugins, "terraform-provider-talosupgrade")); err != nil {
		t.Fatal(err)
	}

	config, err := toolchain.CLIConfig(plugins, plugins)
	if err != nil {
		t.Fatal(err)
	}

	w := &workspace{dir: t.TempDir(), usage: t.TempDir(), command: found.Path}
	w.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+config, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TALOSCONFIG=",
		fmt.Sprintf("%s=%d", serveVariable, speed), usageVariable+"="+w.usage)

	return w
}

// write replaces the configuration, except for the source of the provider.
func (w *workspace) write(t *testing.T, text string) {
	t.Helper()

	const head = "terraform {\n  required_providers {\n    talosupgrade = { source = \"vitistack/talosupgrade\" }\n  }\n}\n\n"

	if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(head+text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// remove removes the state.
func (w *workspace) remove(t *testing.T) {
	t.Helper()

	if err := os.Remove(filepath.Join(w.dir, "terraform.tfstate")); err != nil {
		t.Fatal(err)
	}
}

// run runs the CLI to its end and returns how long it took. If the run fails, it fails the test.
func (w *workspace) run(t *testing.T, args ...string) time.Duration {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), rollPatience)
	defer cancel()

	prepared := exec.CommandContext(ctx, w.command, args...)
	prepared.Dir, prepared.Env = w.dir, w.env
	// The provider inherits the output; without a limit it could keep it open.
	prepared.WaitDelay = 10 * time.Second

	begun := time.Now()
	output, err := prepared.CombinedOutput()
	took := time.Since(begun)

	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, output)
	}

	return took
}

// fastest returns the shortest time of several runs, which is the one that was disturbed least.
func (w *workspace) fastest(t *testing.T, args ...string) time.Duration {
	t.Helper()

	var all []time.Duration
	for range samples {
		all = append(all, w.run(t, args...))
	}

	return slices.Min(all)
}

// schemaTime returns how long the provider takes from its start until it has answered with its schema.
func schemaTime(t *testing.T) time.Duration {
	t.Helper()

	dir, err := toolchain.BuildProvider(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	var all []time.Duration
	for range samples {
		all = append(all, askSchema(t, filepath.Join(dir, "terraform-provider-talosupgrade")))
	}

	return slices.Min(all)
}

func askSchema(t *testing.T, binary string) time.Duration {
	t.Helper()

	const (
		cookie      = "TF_PLUGIN_MAGIC_COOKIE=d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2"
		largest     = 64 << 20
		addressPart = 3
	)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	process := exec.CommandContext(ctx, binary)
	process.Env = append(os.Environ(), cookie, "PLUGIN_PROTOCOL_VERSIONS=6")

	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	begun := time.Now()

	if err := process.Start(); err != nil {
		t.Fatal(err)
	}

	defer func() {
		cancel()

		_ = process.Wait()
	}()

	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}

	fields := strings.Split(strings.TrimSpace(line), "|")
	if len(fields) <= addressPart {
		t.Fatalf("the provider said %q", line)
	}

	connection, err := grpc.NewClient("unix:"+fields[addressPart], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()

	// The answer is not decoded.
	err = connection.Invoke(ctx, "/tfplugin6.Provider/GetProviderSchema", &emptypb.Empty{}, &emptypb.Empty{}, grpc.MaxCallRecvMsgSize(largest))
	if err != nil {
		t.Fatal(err)
	}

	return time.Since(begun)
}
