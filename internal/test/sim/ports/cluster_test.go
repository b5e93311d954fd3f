// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

const (
	image    = "ghcr.io/siderolabs/installer:v1.13.4"
	workerAt = "10.5.0.5"
	firstAt  = "10.5.0.2"
)

// inCluster runs a test in virtual time against three control planes and two
// workers.
func inCluster(t *testing.T, options model.Options, test func(*ports.Cluster, *ports.Client)) {
	t.Helper()

	if options.ControlPlanes == 0 {
		options.ControlPlanes, options.Workers = 3, 2
	}

	if options.Talos == "" {
		options.Talos = "1.13.2"
	}

	synctest.Test(t, func(t *testing.T) {
		simulated, err := ports.New(options)
		if err != nil {
			t.Fatal(err)
		}
		defer simulated.Stop()

		test(simulated, simulated.Client("tester"))
	})
}

// means fails the test unless the error is of the kinds.
func means(t *testing.T, err error, kinds ...error) {
	t.Helper()

	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Errorf("got %v, want %v", err, kind)
		}
	}
}

func TestCluster_ErrorsMeanWhatThoseOfTheAdaptersMean(t *testing.T) {
	ctx := context.Background()
	struck := func(step model.Step, effect model.Effect) []model.Fault {
		return []model.Fault{{Node: model.AnyNode, Step: step, Effect: effect, Times: 1}}
	}
	pull := func(t *testing.T, c *ports.Client) {
		t.Helper()

		if err := c.PullToInstall(ctx, workerAt, image); err != nil {
			t.Fatal(err)
		}
	}

	for name, given := range map[string]struct {
		options model.Options
		call    func(*testing.T, *ports.Client) error
		want    []error
	}{
		"no such image": {call: func(_ *testing.T, c *ports.Client) error {
			return c.Pull(ctx, workerAt, "ghcr.io/siderolabs/installer:v1.14.1", cluster.LifecycleAPI)
		}, want: []error{cluster.ErrNotFound}},
		"pull with the new API from an old node": {options: model.Options{Talos: "1.12.6"}, call: func(_ *testing.T, c *ports.Client) error {
			return c.PullToInstall(ctx, workerAt, image)
		}, want: []error{cluster.ErrUnsupported}},
		"install of an image that was not pulled": {call: func(_ *testing.T, c *ports.Client) error {
			_, err := c.Install(ctx, workerAt, image)

			return err
		}, want: []error{cluster.ErrRefused}},
		"install on an old node": {options: model.Options{Talos: "1.12.6"}, call: func(_ *testing.T, c *ports.Client) error {
			_, err := c.Install(ctx, workerAt, image)

			return err
		}, want: []error{cluster.ErrUnsupported}},
		"second install": {call: func(t *testing.T, c *ports.Client) error {
			pull(t, c)

			cut, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()

			if _, err := c.Install(cut, workerAt, image); !errors.Is(err, cluster.ErrOutcomeUnknown) {
				t.Errorf("an install cut short ended with %v", err)
			}

			_, err := c.Install(ctx, workerAt, image)

			return err
		}, want: []error{cluster.ErrBusy}},
		"install whose reply is lost": {options: model.Options{Faults: struck(model.StepInstall, model.EffectConnectionLost)}, call: func(t *testing.T, c *ports.Client) error {
			pull(t, c)

			_, err := c.Install(ctx, workerAt, image)

			return err
		}, want: []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}},
		"reboot whose reply is lost": {options: model.Options{Faults: struck(model.StepReboot, model.EffectConnectionLost)}, call: func(_ *testing.T, c *ports.Client) error {
			return c.Reboot(ctx, workerAt, cluster.RebootDefault)
		}, want: []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}},
		"cordon whose reply is lost": {options: model.Options{Faults: struck(model.StepPatch, model.EffectConnectionLost)}, call: func(_ *testing.T, c *ports.Client) error {
			_, err := c.Cordon(ctx, "worker-0", "run")

			return err
		}, want: []error{cluster.ErrOutcomeUnknown}},
		"node that does not answer": {options: model.Options{Faults: struck(model.StepObserve, model.EffectUnreachable)}, call: func(_ *testing.T, c *ports.Client) error {
			_, err := c.Machine(ctx, workerAt, nil, cluster.Everything)

			return err
		}, want: []error{cluster.ErrUnreachable}},
		"etcd of a worker": {call: func(_ *testing.T, c *ports.Client) error {
			_, err := c.Etcd(ctx, workerAt, true)

			return err
		}, want: []error{cluster.ErrUnsupported}},
		"legacy upgrade of one of two members": {options: model.Options{ControlPlanes: 2, Talos: "1.12.6"}, call: func(_ *testing.T, c *ports.Client) error {
			_, err := c.Upgrade(ctx, firstAt, image, cluster.RebootDefault, nil)

			return err
		}, want: []error{cluster.ErrRefused}},
		"cordon of nobody": {call: func(_ *testing.T, c *ports.Client) error {
			_, err := c.Cordon(ctx, "nobody", "run")

			return err
		}, want: []error{cluster.ErrNotFound}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, given.options, func(_ *ports.Cluster, c *ports.Client) { means(t, given.call(t, c), given.want...) })
		})
	}
}

func TestCluster_InstallerIsIdleUnlessOneRuns(t *testing.T) {
	inCluster(t, model.Options{}, func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if idle, err := c.InstallerIdle(ctx, workerAt); !idle || err != nil {
			t.Errorf("got %t and %v from an idle node", idle, err)
		}

		if err := c.PullToInstall(ctx, workerAt, image); err != nil {
			t.Fatal(err)
		}

		cut, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()

		_, _ = c.Install(cut, workerAt, image)

		if idle, err := c.InstallerIdle(ctx, workerAt); idle || err != nil {
			t.Errorf("got %t and %v while an installer runs", idle, err)
		}
	})
}

func TestCluster_InterceptorSeesEveryCall(t *testing.T) {
	inCluster(t, model.Options{}, func(_ *ports.Cluster, c *ports.Client) {
		ctx, failed := context.Background(), errors.New("planted")

		var seen []string

		c.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			seen = append(seen, call.String())

			if call.Mutation == 1 {
				return failed
			}

			return next(ctx)
		})

		if _, err := c.Nodes(ctx); err != nil {
			t.Error(err)
		}

		means(t, c.Reboot(ctx, workerAt, cluster.RebootDefault), failed)

		if _, err := c.Cordon(ctx, "worker-1", "run"); err != nil {
			t.Error(err)
		}

		want := []string{"Nodes (call 1, mutation 0)", "Reboot of worker-0 (call 2, mutation 1)", "Cordon of worker-1 (call 3, mutation 2)"}
		if len(seen) != len(want) || seen[0] != want[0] || seen[1] != want[1] || seen[2] != want[2] {
			t.Errorf("saw %q, want %q", seen, want)
		}

		if all, mutating := c.Calls(); all != 3 || mutating != 2 {
			t.Errorf("counted %d and %d calls", all, mutating)
		}
	})
}
