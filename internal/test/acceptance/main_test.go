// SPDX-License-Identifier: MPL-2.0

// Package acceptance runs the provider with a real Terraform or OpenTofu command against simulated clusters. TF_ACC=1
// enables it; with TALOSUPGRADE_ACC=full everything runs, otherwise a small selection.
package acceptance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider"
	process "github.com/vitistack/terraform-provider-talosupgrade/internal/serve"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// serveVariable makes the test binary the provider: its value is the factor by which the provider's clock is
	// faster than real time.
	serveVariable = "TALOSUPGRADE_ACC_SERVE"
	// pidVariable names a directory in which the provider creates a file whose name is its process ID.
	pidVariable = "TALOSUPGRADE_ACC_PIDS"
	// scopeVariable selects how much runs.
	scopeVariable = "TALOSUPGRADE_ACC"
	// everywhereVariable, if it is set, makes all clusters use the real Kubernetes, provided that it runs.
	everywhereVariable = "TALOSUPGRADE_ACC_REAL"

	registryAddress = "registry.terraform.io/vitistack/talosupgrade"
)

func TestMain(m *testing.M) {
	if factor := os.Getenv(serveVariable); factor != "" {
		if err := serve(factor); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		return
	}

	goleak.VerifyTestMain(m)
}

// serve serves the provider, with a clock as fast as the simulator's.
func serve(factor string) error {
	scale, err := strconv.ParseFloat(factor, 64)
	if err != nil {
		return err
	}

	if dir := os.Getenv(pidVariable); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), nil, 0o600); err != nil {
			return err
		}
	}

	return process.Serve(registryAddress, provider.New("test", provider.WithClock(newClock(scale))), false, func() { os.Exit(0) })
}

// clock is the simulator's clock as an engine.Clock.
type clock struct {
	*model.ScaledClock
}

func newClock(scale float64) clock { return clock{model.NewScaledClock(scale)} }

// WithTimeout implements engine.Clock.
func (c clock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.Real(d))
}

// smoke marks a test that runs in every acceptance run: over the Kubernetes in memory, and in a complete run over the
// real one.
func smoke(t *testing.T) {
	t.Helper()

	if os.Getenv("TF_ACC") == "" {
		t.Skip("TF_ACC is not set")
	}
}

// full marks a test that runs only in a complete run, in parallel with others: most of its time it waits for a
// cluster of its own, whose Kubernetes is in memory.
func full(t *testing.T) {
	t.Helper()
	complete(t)
	inMemory.Store(rootOf(t), true)
}

// rootOf returns the name of the test that a subtest belongs to.
func rootOf(t *testing.T) string {
	t.Helper()

	name, _, _ := strings.Cut(t.Name(), "/")

	return name
}

// fullOverReal marks a test of a complete run whose cluster has the real Kubernetes: because it needs what only that
// has, or because similar tests use the one in memory.
func fullOverReal(t *testing.T) {
	t.Helper()
	toolchain.NeedKubernetes(t)
	complete(t)
}

// inMemory has the names of the tests that [full] marks.
var inMemory sync.Map

// overReal reports whether a cluster of a test has the real Kubernetes.
func overReal(t *testing.T, options sim.Options) bool {
	t.Helper()

	_, marked := inMemory.Load(rootOf(t))

	if options.CustomResources || options.Management {
		toolchain.NeedKubernetes(t)

		return true
	}

	return toolchain.RealKubernetes() && (!marked || os.Getenv(everywhereVariable) != "")
}

// complete marks a test of a complete run.
func complete(t *testing.T) {
	t.Helper()
	smoke(t)

	// make testacc runs only tests with such a name.
	if !strings.HasPrefix(t.Name(), "TestAcc") {
		t.Fatalf("the name of %s does not begin with TestAcc: nothing would ever run it", t.Name())
	}

	if os.Getenv(scopeVariable) != "full" {
		t.Skipf("%s is not full", scopeVariable)
	}

	t.Parallel()
}

// command returns the CLI under test.
func command(t *testing.T) toolchain.CLI {
	t.Helper()

	found, err := toolchain.Terraform(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	return found
}
