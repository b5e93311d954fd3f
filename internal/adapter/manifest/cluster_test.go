// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// suite is one simulated cluster with a real API server, which the tests share:
// starting it takes seconds. Talos 1.12 leaves the inventory to a sync.
var suite *sim.Simulator

func TestMain(m *testing.M) {
	flag.Parse()

	code, err := run(m)
	if err == nil && code == 0 {
		err = goleak.Find()
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if testing.Short() {
		return m.Run(), nil
	}

	dir, err := os.MkdirTemp("", "manifest")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)

	// Building Kubernetes, where nobody has yet, takes minutes.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	suite, err = start(ctx, "1.12.6", dir)
	if err != nil {
		return 1, err
	}

	code = m.Run()

	return code, suite.Stop()
}

func start(ctx context.Context, talos, dir string) (*sim.Simulator, error) {
	return sim.Start(ctx, sim.Options{
		ControlPlanes: 1, Talos: talos, Kubernetes: "1.34.2", Seed: 1, Dir: dir, Progress: os.Stderr,
	})
}
