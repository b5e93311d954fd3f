// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// suite is one simulated cluster with a real API server, which the tests that
// need one share: starting it takes seconds. They leave it as they found it.
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

	dir, err := os.MkdirTemp("", "kubeapi")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)

	// Building Kubernetes, where nobody has yet, takes minutes.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	suite, err = sim.Start(ctx, sim.Options{
		ControlPlanes: 3, Workers: 2, Talos: "1.13.2", Kubernetes: "1.35.2", Pods: 6, Seed: 1, Dir: dir, Progress: os.Stderr,
	})
	if err != nil {
		return 1, err
	}

	code = m.Run()

	return code, suite.Stop()
}

// live is a client of the real API server, and one of client-go's to arrange
// and look at things with.
func live(t *testing.T) (*kubeapi.Client, kubernetes.Interface) {
	t.Helper()

	return liveWith(t, func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
}

// liveWith is live with a way of its own to sleep.
func liveWith(t *testing.T, sleep func(context.Context, time.Duration) error) (*kubeapi.Client, kubernetes.Interface) {
	t.Helper()

	if suite == nil {
		t.Skip("no real API server in short mode")
	}

	kubeconfig, err := os.ReadFile(suite.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	client, err := kubeapi.New(kubeconfig, "", kubeapi.Options{UserAgent: "terraform-provider-talosupgrade/test", Sleep: sleep})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	other, err := kubernetes.NewForConfigAndClient(client.Config(), client.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}

	return client, other
}

// eventually waits for what the simulated cluster does by itself.
func eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()

	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()

	var err error

	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-ticker.C {
		var held bool
		if held, err = holds(); err == nil && held {
			return
		}
	}

	t.Fatal(errors.Join(fmt.Errorf("waited in vain for %s", what), err))
}
