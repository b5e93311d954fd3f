// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestEtcd_LearnerIsKnownByItsStatus, because it answers nothing else; the others list it.
func TestEtcd_LearnerIsKnownByItsStatus(t *testing.T) {
	inCluster(t, model.Options{Faults: ill("cp-0", model.StepEtcd, model.EffectLearner)}, func(_ *ports.Cluster, c *ports.Client) {
		view, err := c.Etcd(context.Background(), firstAt, true)
		if err != nil || !view.Status.Learner || view.Status.MemberID == 0 || view.Members != nil {
			t.Errorf("the learner: %+v, %v", view, err)
		}

		view, err = c.Etcd(context.Background(), thirdAt, true)
		if err != nil || view.Status.Learner || len(view.Members) != 3 || !view.Members[0].Learner {
			t.Errorf("a voter: %+v, %v", view, err)
		}
	})
}

func TestEtcd_LearnerIsNoResultForACallerWhoStopped(t *testing.T) {
	inCluster(t, model.Options{Faults: ill("cp-0", model.StepEtcd, model.EffectLearner)}, func(_ *ports.Cluster, c *ports.Client) {
		ctx, cancel := context.WithCancel(context.Background())

		c.Intercept(func(ctx context.Context, _ ports.Call, next func(context.Context) error) error {
			cancel()

			return next(ctx)
		})

		view, err := c.Etcd(ctx, firstAt, true)
		means(t, err, context.Canceled)

		if view.Status.Learner {
			t.Errorf("got %+v", view)
		}
	})
}

func TestEtcd_VotingMemberTellsEverything(t *testing.T) {
	for name, given := range map[string]struct {
		effect model.Effect
		want   error
	}{
		"silent":           {model.EffectSilent, cluster.ErrUnreachable},
		"without a leader": {model.EffectNoLeader, cluster.ErrQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, model.Options{Faults: ill("cp-0", model.StepEtcd, given.effect)}, func(_ *ports.Cluster, c *ports.Client) {
				view, err := c.Etcd(context.Background(), firstAt, true)
				means(t, err, given.want)

				if view.Status.MemberID != 0 {
					t.Errorf("got %+v beside an error", view)
				}
			})
		})
	}
}

func TestTalos_Rollback(t *testing.T) {
	inCluster(t, model.Options{}, func(simulated *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		means(t, c.Rollback(ctx, workerAt), cluster.ErrRefused)

		if err := c.PullToInstall(ctx, workerAt, image); err != nil {
			t.Fatal(err)
		}

		if done, err := c.Install(ctx, workerAt, image); err != nil || done.Exit != 0 {
			t.Fatalf("install: %+v, %v", done, err)
		}

		if err := c.Reboot(ctx, workerAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		simulated.World().SetFaults([]model.Fault{
			{Node: "worker-0", Step: model.StepRollback, Effect: model.EffectFail, Times: 1},
			{Node: "worker-0", Step: model.StepRollback, Effect: model.EffectConnectionLost, Times: 1},
		})
		means(t, c.Rollback(ctx, workerAt), cluster.ErrRefused)
		means(t, c.Rollback(ctx, workerAt), cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
		time.Sleep(10 * time.Minute)

		if machine, err := c.Machine(ctx, workerAt, nil, cluster.Everything); err != nil || machine.Talos.String() != "1.13.2" || machine.UpgradePending {
			t.Errorf("afterwards: %+v, %v", machine, err)
		}
	})
}

func TestTalos_Logs(t *testing.T) {
	inCluster(t, model.Options{Faults: ill("worker-0", model.StepKubelet, model.EffectNotReady)}, func(simulated *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		lines, err := c.WithRoles("os:reader").Logs(ctx, workerAt, "kubelet", 1)
		if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "is not ready") {
			t.Errorf("the kubelet says %q, %v", lines, err)
		}

		if lines, err := c.Logs(ctx, workerAt, "kubelet", -1); err != nil || len(lines) != 0 {
			t.Errorf("no lines: %q, %v", lines, err)
		}

		_, err = c.Logs(ctx, workerAt, "etcd", 5)
		means(t, err, cluster.ErrNotFound)

		if err := simulated.World().RebootByHand("worker-0", model.RebootForce); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Second)

		_, err = c.Logs(ctx, workerAt, "machined", 5)
		means(t, err, cluster.ErrUnreachable)
	})
}

func TestTalos_VersionOfEtcd(t *testing.T) {
	inCluster(t, model.Options{Talos: "1.10.7"}, func(_ *ports.Cluster, c *ports.Client) {
		if view, err := c.Etcd(context.Background(), firstAt, true); err != nil || view.Status.Version != "3.5.21" {
			t.Errorf("%+v, %v", view, err)
		}
	})
}

func ill(node string, step model.Step, effect model.Effect) []model.Fault {
	return []model.Fault{{Node: node, Step: step, Effect: effect, Times: 1}}
}

func TestTalos_NodeTellsAboutItsDiskAndItsClock(t *testing.T) {
	healthy := func(v cluster.Vitals) bool {
		return v.Disk != nil && v.Disk.Available > 1<<30 && v.Disk.Size > v.Disk.Available && v.Time != nil && v.Time.Synced && !v.Time.Disabled
	}

	for name, given := range map[string]struct {
		faults []model.Fault
		want   func(cluster.Vitals) bool
		why    string
	}{
		"healthy":             {faults: nil, want: healthy},
		"another one is ill":  {faults: ill("cp-0", model.StepDisk, model.EffectFull), want: healthy},
		"a full disk":         {faults: ill("worker-0", model.StepDisk, model.EffectFull), want: func(v cluster.Vitals) bool { return v.Disk.Available == 100<<20 }},
		"a clock on its own":  {faults: ill("worker-0", model.StepClock, model.EffectUnsynced), want: func(v cluster.Vitals) bool { return !v.Time.Synced && !v.Time.Disabled }},
		"a clock left alone":  {faults: ill("worker-0", model.StepClock, model.EffectDisabled), want: func(v cluster.Vitals) bool { return v.Time.Disabled }},
		"a clock that is not": {faults: ill("worker-0", model.StepClock, model.EffectUnreadable), want: func(v cluster.Vitals) bool { return v.Time == nil && v.Disk != nil }},
		"a disk untold": {
			faults: ill("worker-0", model.StepDisk, model.EffectUnreadable), why: "input/output error",
			want: func(v cluster.Vitals) bool { return v.Disk == nil && v.Time.Synced },
		},
		"a disk that hangs": {
			faults: ill("worker-0", model.StepDisk, model.EffectStall), why: "no answer within 3s",
			want: func(v cluster.Vitals) bool {
				return v.Disk == nil && v.Time.Synced && errors.Is(v.DiskError, cluster.ErrUnreachable)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, model.Options{Faults: given.faults}, func(_ *ports.Cluster, c *ports.Client) {
				got, err := c.Vitals(context.Background(), workerAt)
				if err != nil || !given.want(got) {
					t.Errorf("got %+v and %+v, %v", got.Disk, got.Time, err)
				}

				if (got.DiskError == nil) != (given.why == "") || given.why != "" && !strings.Contains(got.DiskError.Error(), given.why) || got.TimeError != nil {
					t.Errorf("it does not tell because of %v and %v, want %q", got.DiskError, got.TimeError, given.why)
				}
			})
		})
	}
}

func TestTalos_VitalsAreNoneForACallerWhoStopped(t *testing.T) {
	inCluster(t, model.Options{Faults: ill("worker-0", model.StepDisk, model.EffectStall)}, func(_ *ports.Cluster, c *ports.Client) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()

		if got, err := c.Vitals(ctx, workerAt); !errors.Is(err, context.DeadlineExceeded) || got.Time != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// TestTalos_ImagesAreOnAVolumeOfTheirOwn, which fills up while /var does not.
func TestTalos_ImagesAreOnAVolumeOfTheirOwn(t *testing.T) {
	for name, given := range map[string]struct {
		faults []model.Fault
		want   cluster.DiskSpace
	}{
		"healthy": {nil, cluster.DiskSpace{Size: model.ContainerdSize, Available: model.ContainerdFree}},
		"full":    {ill("worker-0", model.StepDisk, model.EffectFull), cluster.DiskSpace{Size: model.ContainerdSize, Available: model.FullDisk}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, model.Options{ContainerdVolume: true, Faults: given.faults}, func(_ *ports.Cluster, c *ports.Client) {
				if got, err := c.Vitals(context.Background(), workerAt); err != nil || got.Disk == nil || *got.Disk != given.want {
					t.Errorf("got %+v, %v; want %+v", got.Disk, err, given.want)
				}
			})
		})
	}
}

// snapshots records the events about snapshots.
type snapshots struct{ calls, wholes []string }

// Record implements [history.Recorder].
func (s *snapshots) Record(_ string, kind history.Kind, detail map[string]string) {
	switch {
	case kind == history.KindSnapshot:
		s.wholes = append(s.wholes, detail["whole"])
	case kind == history.KindRPC && strings.HasSuffix(detail["method"], "/EtcdSnapshot"):
		s.calls = append(s.calls, detail["code"])
	}
}

func TestVault_SnapshotIsKeptWholeOrNotAtAll(t *testing.T) {
	errWriter := errors.New("no space left on device")

	for name, given := range map[string]struct {
		faults        []model.Fault
		address       string
		roles         []string
		writer        error
		want          []error
		calls, wholes string
	}{
		"whole":                  {calls: "OK", wholes: "true"},
		"for a backup":           {roles: []string{"os:etcd:backup"}, calls: "OK", wholes: "true"},
		"a pause":                {faults: []model.Fault{{Node: "cp-0", Step: model.StepEtcdSnapshot, Effect: model.EffectStall, Times: 1, For: 40 * time.Second}}, calls: "OK", wholes: "true"},
		"cut":                    {faults: ill("cp-0", model.StepEtcdSnapshot, model.EffectCut), want: []error{cluster.ErrIncomplete}, calls: "OK", wholes: "false"},
		"other bytes":            {faults: ill("cp-0", model.StepEtcdSnapshot, model.EffectCorrupt), want: []error{cluster.ErrIncomplete}, calls: "OK", wholes: "false"},
		"a connection that ends": {faults: ill("cp-0", model.StepEtcdSnapshot, model.EffectConnectionLost), want: []error{cluster.ErrUnreachable}, calls: "Unavailable", wholes: "false"},
		"nothing any more":       {faults: ill("cp-0", model.StepEtcdSnapshot, model.EffectStall), want: []error{cluster.ErrUnreachable}, calls: "Canceled", wholes: "false"},
		"etcd says no":           {faults: ill("cp-0", model.StepEtcdSnapshot, model.EffectFail), want: []error{cluster.ErrUnreachable}, calls: "Unknown", wholes: "false"},
		"etcd says nothing":      {faults: ill("cp-0", model.StepEtcd, model.EffectSilent), want: []error{cluster.ErrUnreachable}},
		"a worker":               {address: workerAt, want: []error{cluster.ErrUnsupported}, calls: "Unimplemented"},
		"a reader":               {roles: []string{"os:reader"}, want: []error{cluster.ErrDenied}},
		"no room":                {writer: errWriter, want: []error{errWriter}, calls: "Unknown", wholes: "false"},
	} {
		t.Run(name, func(t *testing.T) {
			var told snapshots

			inCluster(t, model.Options{Faults: given.faults, Recorder: &told}, func(_ *ports.Cluster, c *ports.Client) {
				if given.address == "" {
					given.address = firstAt
				}

				if given.roles != nil {
					c.WithRoles(given.roles...)
				}

				vault := ports.NewVault()
				saved, err := vault.Save(context.Background(), "test", time.Now(), func(ctx context.Context, to io.Writer) error {
					if given.writer != nil {
						to = failing{given.writer}
					}

					return c.EtcdSnapshot(ctx, given.address, to)
				})

				means(t, err, given.want...)

				if kept := len(vault.Saved()); (err == nil) != (kept == 1) || err == nil != (given.want == nil) {
					t.Errorf("kept %d snapshots, %+v, %v", kept, saved, err)
				}

				if err == nil && (saved.Size%512 != sha256.Size || len(saved.SHA256) != hex.EncodedLen(sha256.Size) || saved.Path == "") {
					t.Errorf("got %+v", saved)
				}
			})

			if calls, wholes := strings.Join(told.calls, " "), strings.Join(told.wholes, " "); calls != given.calls || wholes != given.wholes {
				t.Errorf("the history tells of the calls %q and of the snapshots %q, want %q and %q", calls, wholes, given.calls, given.wholes)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestVault_KeepsOnlyWholeSnapshots(t *testing.T) {
	ctx := context.Background()
	body := bytes.Repeat([]byte{7}, 1024)
	sum := sha256.Sum256(body)
	stream := func(parts ...[]byte) func(context.Context, io.Writer) error {
		return func(_ context.Context, to io.Writer) error {
			_, err := to.Write(bytes.Join(parts, nil))

			return err
		}
	}

	vault := ports.NewVault()

	for name, given := range map[string]func(context.Context, io.Writer) error{
		"nothing":         stream(),
		"only a checksum": stream(sum[:]),
		"no checksum":     stream(body),
		"half a page":     stream(body[:700], sum[:]),
		"another body":    stream(bytes.Repeat([]byte{8}, 1024), sum[:]),
	} {
		if _, err := vault.Save(ctx, "test", time.Now(), given); !errors.Is(err, cluster.ErrIncomplete) {
			t.Errorf("%s: got %v", name, err)
		}
	}

	if _, err := vault.Check(ctx); err != nil || len(vault.Saved()) != 0 {
		t.Fatalf("it keeps %+v, %v", vault.Saved(), err)
	}

	refusal := errors.New("read-only file system")
	vault.Refuse(refusal)

	_, err := vault.Check(ctx)
	means(t, err, refusal)

	_, err = vault.Save(ctx, "test", time.Now(), stream(body, sum[:]))
	means(t, err, refusal)

	vault.Refuse(nil)

	taken := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	if saved, err := vault.Save(ctx, "test", taken, stream(body, sum[:])); err != nil || saved.Path != "/vault/test-20260304T050607Z.db" || saved.Size != 1056 {
		t.Errorf("got %+v, %v", saved, err)
	}

	if vault.Checks() != 2 {
		t.Errorf("counted %d checks", vault.Checks())
	}
}

func TestRegistry_HasEveryImageNotSaidToBeMissing(t *testing.T) {
	ctx := context.Background()
	registry := ports.NewRegistry()

	registry.Missing("a:1")
	registry.Deny("b:1")
	registry.Unreachable("c:1")

	for reference, want := range map[string]error{
		"a:1": cluster.ErrNotFound, "b:1": cluster.ErrDenied, "c:1": cluster.ErrUnreachable, "d:1": nil,
	} {
		if err := registry.Image(ctx, reference); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), reference) {
			t.Errorf("%s: got %v, want %v", reference, err, want)
		}
	}

	registry.Present("a:1")
	registry.Unreachable()

	if err := registry.Image(ctx, "b:1"); !errors.Is(err, cluster.ErrDenied) {
		t.Errorf("what is denied is %v", err)
	}

	means(t, registry.Image(ctx, "a:1"), cluster.ErrUnreachable)
	registry.Present()

	planted := errors.New("planted")
	registry.Before(func(context.Context, string) error { return planted })
	means(t, registry.Image(ctx, "b:1"), planted)
	registry.Before(nil)

	ended, end := context.WithCancel(ctx)
	end()

	means(t, registry.Image(ended, "b:1"), context.Canceled)

	if err := registry.Image(ctx, "b:1"); err != nil || len(registry.Asked()) != 9 {
		t.Errorf("got %v after %q", err, registry.Asked())
	}
}
