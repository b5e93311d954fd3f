// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider"
	process "github.com/vitistack/terraform-provider-talosupgrade/internal/serve"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	// usageVariable names a directory in which each process of the provider writes a file with its usage.
	usageVariable = "TALOSUPGRADE_BENCH_USAGE"
	// profileVariable names a directory in which each process of the provider writes a profile of its CPU time and one
	// of its allocations, for go tool pprof.
	profileVariable = "BENCH_PROFILE"

	registryAddress = "registry.terraform.io/vitistack/talosupgrade"
)

// usage is what a process used.
type usage struct {
	CPU time.Duration
	// Peak is its peak memory, in bytes.
	Peak int64
}

// serve serves the provider, with a clock as fast as the simulator's.
func serve(factor string) error {
	scale, err := strconv.ParseFloat(factor, 64)
	if err != nil {
		return err
	}

	profiled, err := profile(os.Getenv(profileVariable))
	if err != nil {
		return err
	}

	// Both the end of the command line and a signal end the process.
	ended := sync.OnceValue(func() error { return errors.Join(leaveUsage(os.Getenv(usageVariable)), profiled()) })
	err = process.Serve(registryAddress, provider.New("test", provider.WithClock(clock{model.NewScaledClock(scale)})), false, func() {
		_ = ended()

		os.Exit(0)
	})
	if err != nil {
		return err
	}

	return ended()
}

// profile profiles the process until the function that it returns is called.
func profile(dir string) (ended func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}

	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}

	create := func(kind string) (*os.File, error) {
		return os.Create(filepath.Join(dir, fmt.Sprintf("%d.%s", os.Getpid(), kind)))
	}

	cpu, err := create("cpu")
	if err != nil {
		return nil, err
	}

	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}

	return func() error {
		pprof.StopCPUProfile()

		// The profile shows what was allocated up to the last collection.
		runtime.GC()

		allocations, err := create("allocs")
		if err != nil {
			return errors.Join(err, cpu.Close())
		}

		return errors.Join(cpu.Close(), pprof.Lookup("allocs").WriteTo(allocations, 0), allocations.Close())
	}, nil
}

// clock is the simulator's clock as an engine.Clock.
type clock struct {
	*model.ScaledClock
}

// WithTimeout implements engine.Clock.
func (c clock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.Real(d))
}

func leaveUsage(dir string) error {
	if dir == "" {
		return nil
	}

	var taken syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &taken); err != nil {
		return fmt.Errorf("asking what the provider took: %w", err)
	}

	const kibibyte = 1 << 10

	text, err := json.Marshal(usage{
		CPU:  time.Duration(taken.Utime.Nano() + taken.Stime.Nano()),
		Peak: taken.Maxrss * kibibyte,
	})
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), text, 0o600)
}

// usages returns what the ended processes of the provider used together.
func usages(t *testing.T, dir string) (sum usage) {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no process of the provider has said what it took: %v", err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		var one usage
		if err := json.Unmarshal(text, &one); err != nil {
			t.Fatal(err)
		}

		sum.CPU += one.CPU
		sum.Peak = max(sum.Peak, one.Peak)
	}

	return sum
}
