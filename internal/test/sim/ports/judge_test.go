// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// judge judges every event.
type judge struct {
	mu      sync.Mutex
	checker *checker.Checker
	world   *model.World
}

// Record implements [history.Recorder].
func (j *judge) Record(node string, kind history.Kind, detail map[string]string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	event := history.Event{Node: node, Kind: kind, Detail: detail}

	if j.world != nil {
		event.Sim = j.world.Now().Seconds()
	}

	j.checker.Add(event)
}

// careless holds the lease and observes everything as a client, and then does something whatever it observed.
func careless(t *testing.T, c *ports.Client, do func(context.Context) error) {
	t.Helper()

	ctx := context.Background()

	if _, err := c.WriteLease(ctx, cluster.Lease{Holder: c.Name(), Duration: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}

	for _, address := range []string{firstAt, "10.5.0.3", thirdAt, workerAt, "10.5.0.6"} {
		// Some of them are faulty, so errors do not matter.
		_, _ = c.Machine(ctx, address, nil, cluster.Everything)
		_, _ = c.Etcd(ctx, address, true)
	}

	if _, err := c.Nodes(ctx); err != nil {
		t.Fatal(err)
	}

	if err := do(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestJudge_CatchesActionsInSpiteOfTrouble(t *testing.T) {
	etcd := func(effect model.Effect) []model.Fault { return ill("cp-1", model.StepEtcd, effect) }
	cordon := func(node string) func(*ports.Cluster, *ports.Client) func(context.Context) error {
		return func(_ *ports.Cluster, c *ports.Client) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.Cordon(ctx, node, c.Name())

				return err
			}
		}
	}
	first := []checker.Option{checker.SnapshotFirst()}

	for name, given := range map[string]struct {
		faults  []model.Fault
		options []checker.Option
		before  func(*testing.T, *ports.Cluster, *ports.Client)
		do      func(*ports.Cluster, *ports.Client) func(context.Context) error
		want    []checker.Invariant
	}{
		"nothing is wrong":       {do: cordon("cp-0")},
		"an alarm":               {faults: etcd(model.EffectAlarmNoSpace), do: cordon("worker-0"), want: []checker.Invariant{checker.S2}},
		"another alarm":          {faults: etcd(model.EffectAlarmCorrupt), do: cordon("cp-0"), want: []checker.Invariant{checker.S2}},
		"an alarm, skipped":      {faults: etcd(model.EffectAlarmNoSpace), options: []checker.Option{checker.Skips(cluster.CheckEtcdAlarms)}, do: cordon("worker-0")},
		"a member that lags":     {faults: etcd(model.EffectLagging), do: cordon("cp-0"), want: []checker.Invariant{checker.S2}},
		"a member that is mute":  {faults: etcd(model.EffectSilent), do: cordon("cp-0"), want: []checker.Invariant{checker.S2}},
		"a learner":              {faults: etcd(model.EffectLearner), do: cordon("cp-0"), want: []checker.Invariant{checker.S2}},
		"a member without lead":  {faults: etcd(model.EffectNoLeader), do: cordon("cp-0"), want: []checker.Invariant{checker.S2}},
		"a member with an error": {faults: etcd(model.EffectReports), do: cordon("cp-0"), want: []checker.Invariant{checker.S2}},
		"a big database":         {faults: etcd(model.EffectBig), do: cordon("cp-0")},
		"what is over": {faults: etcd(model.EffectLagging), before: func(_ *testing.T, s *ports.Cluster, _ *ports.Client) {
			s.World().SetFaults(nil)
		}, do: cordon("cp-0")},
		"somebody else upgrades": {before: func(t *testing.T, s *ports.Cluster, _ *ports.Client) {
			t.Helper()

			if err := s.World().UpgradeByHand("cp-1", image); err != nil {
				t.Fatal(err)
			}

			time.Sleep(5 * time.Second)
		}, do: cordon("cp-0"), want: []checker.Invariant{checker.S1}},
		"somebody else has upgraded": {before: func(t *testing.T, s *ports.Cluster, _ *ports.Client) {
			t.Helper()

			if err := s.World().UpgradeByHand("cp-1", image); err != nil {
				t.Fatal(err)
			}

			time.Sleep(10 * time.Minute)
		}, do: cordon("cp-0")},
		"no snapshot":  {options: first, do: cordon("worker-0"), want: []checker.Invariant{checker.S14}},
		"a snapshot":   {options: first, before: snap, do: cordon("worker-0")},
		"half of one":  {faults: ill("cp-0", model.StepEtcdSnapshot, model.EffectCut), options: first, before: snap, do: cordon("worker-0"), want: []checker.Invariant{checker.S14}},
		"a false one":  {faults: ill("cp-0", model.StepEtcdSnapshot, model.EffectCorrupt), options: first, before: snap, do: cordon("worker-0"), want: []checker.Invariant{checker.S14}},
		"a sync of it": {faults: etcd(model.EffectLagging), options: first, do: installImage},
	} {
		t.Run(name, func(t *testing.T) {
			judging := &judge{checker: checker.New(given.options...)}

			inCluster(t, model.Options{Faults: given.faults, Recorder: judging}, func(s *ports.Cluster, c *ports.Client) {
				judging.mu.Lock()
				judging.world = s.World()
				judging.mu.Unlock()

				time.Sleep(10 * time.Second)

				if given.before != nil {
					given.before(t, s, c)
				}

				careless(t, c, given.do(s, c))

				judging.mu.Lock()
				defer judging.mu.Unlock()

				if verdict := judging.checker.Verdict(); !slices.Equal(verdict.Broken(), given.want) {
					t.Errorf("broke %v, want %v: %+v", verdict.Broken(), given.want, verdict.Violations)
				}
			})
		})
	}
}

// snap takes a snapshot of etcd, and ignores errors.
func snap(_ *testing.T, _ *ports.Cluster, c *ports.Client) {
	_ = c.EtcdSnapshot(context.Background(), firstAt, io.Discard)
}

// installImage configures another image for a control plane to install from.
func installImage(s *ports.Cluster, c *ports.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		state, err := s.World().Node("cp-0")
		if err != nil {
			return err
		}

		return c.Configure(ctx, firstAt, cluster.ImageChange{Component: cluster.Installer, From: state.InstallImage, To: image})
	}
}
