// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const genericImage = "ghcr.io/siderolabs/installer:v1.13.4"

// face records what machines ask of Kubernetes.
type face struct {
	mu    sync.Mutex
	calls []string
	fail  error
}

func (f *face) Cordon(_ context.Context, node string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.calls = append(f.calls, map[bool]string{true: "cordon ", false: "uncordon "}[on]+node)

	return f.fail
}

func (f *face) Drain(_ context.Context, node string, timeout time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.calls = append(f.calls, "drain "+node+" "+timeout.String())

	return errors.New("a budget has nothing to give")
}

func (f *face) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	return strings.Join(f.calls, ", ")
}

func (r rig) legacy(name string, options model.LegacyOptions) {
	r.t.Helper()

	if _, err := r.LegacyUpgrade(r.t.Context(), name, options); err != nil {
		r.t.Fatal(err)
	}
}

func TestLegacy_DrainsInstallsAndReboots(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Workers: 1, Talos: "1.12.6", Schematic: ""}, func(r rig) {
		kubernetes := &face{}
		r.SetKubernetes(kubernetes)
		r.legacy("cp-1", model.LegacyOptions{Image: genericImage})

		if state := r.node("cp-1"); state.Stage != model.StageUpgrading || !state.Ready {
			r.t.Fatalf("after the acknowledgement: %+v", state)
		}

		r.until("cp-1", "down", 3*time.Minute, down)

		state := r.until("cp-1", "ready", 5*time.Minute, ready)
		if state.Talos != "1.13.4" || state.Installs != 1 || state.Reboots != 1 || !state.EtcdHealthy {
			r.t.Fatalf("afterwards: %+v", state)
		}

		if got := kubernetes.text(); got != "cordon cp-1, drain cp-1 5m0s, uncordon cp-1" {
			r.t.Fatalf("asked of Kubernetes: %s", got)
		}

		installs := r.log.of("cp-1", history.KindInstall)
		if len(installs) != 1 || installs[0].Detail["by"] != "legacy" {
			r.t.Fatalf("installs: %+v", installs)
		}
	})
}

// What clients pulled is in another store than the one from which a machine installs when it upgrades itself, so it
// is downloaded once more.
func TestLegacy_HasAnImageStoreOfItsOwn(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r rig) {
		if _, err := r.Pull(r.t.Context(), "worker-0", genericImage, nil); err != nil {
			r.t.Fatal(err)
		}

		if state := r.node("worker-0"); !slices.Contains(state.Images, genericImage) || len(state.OwnImages) != 0 {
			r.t.Errorf("pulled: %v and %v", state.Images, state.OwnImages)
		}

		begun := time.Now()
		r.legacy("worker-0", model.LegacyOptions{Image: genericImage})

		if took := time.Since(begun); took < 30*time.Second {
			r.t.Errorf("accepted after %s: the image was not downloaded again", took)
		}

		if state := r.node("worker-0"); !slices.Contains(state.OwnImages, genericImage) {
			r.t.Errorf("its own: %v", state.OwnImages)
		}
	})
}

func TestLegacy_ChecksEtcd(t *testing.T) {
	for _, test := range []struct {
		name    string
		planes  int
		talos   string
		options model.LegacyOptions
		before  func(rig)
		refusal string
	}{
		{name: "two members", planes: 2, talos: "1.12.6", refusal: "etcd member count(2) is insufficient to maintain quorum"},
		{name: "one member", planes: 1, talos: "1.12.6"},
		{name: "force", planes: 2, talos: "1.12.6", options: model.LegacyOptions{Force: true}},
		{
			name: "preserve below 1.13", planes: 2, talos: "1.12.6", options: model.LegacyOptions{Preserve: true},
			refusal: "etcd member count(2)",
		},
		{name: "preserve from 1.13 on", planes: 2, talos: "1.13.2", options: model.LegacyOptions{Preserve: true}},
		{
			name: "a member is down", planes: 3, talos: "1.12.6", refusal: "is not healthy; all members must be healthy",
			before: func(r rig) {
				r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}})

				if _, err := r.Reboot(r.t.Context(), "cp-0", model.RebootForce); err != nil {
					r.t.Fatal(err)
				}

				time.Sleep(time.Minute)
			},
		},
	} {
		inWorld(t, model.Options{ControlPlanes: test.planes, Talos: test.talos}, func(r rig) {
			if test.before != nil {
				test.before(r)
			}

			test.options.Image = genericImage
			_, err := r.LegacyUpgrade(r.t.Context(), "cp-1", test.options)

			if test.planes == 1 {
				_, err = r.LegacyUpgrade(r.t.Context(), "cp-0", test.options)
			}

			switch {
			case test.refusal == "" && err != nil:
				r.t.Errorf("%s: %v", test.name, err)
			case test.refusal != "" && (!errors.Is(err, model.ErrRefused) || !strings.Contains(err.Error(), test.refusal)):
				r.t.Errorf("%s: got %v, want %q", test.name, err, test.refusal)
			}
		})
	}
}

func TestLegacy_FailedInstallerComesBackOnTheOldVersion(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}})

		before := r.node("worker-0")
		r.legacy("worker-0", model.LegacyOptions{Image: genericImage})
		r.until("worker-0", "down", 3*time.Minute, down)

		after := r.until("worker-0", "ready", 5*time.Minute, ready)
		if after.Talos != "1.12.6" || after.BootID == before.BootID || after.Installs != 0 {
			r.t.Fatalf("afterwards: %+v", after)
		}
	})
}

func TestLegacy_FailsWhenItCannotCordon(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r rig) {
		r.SetKubernetes(&face{fail: errors.New("no api server")})
		r.legacy("worker-0", model.LegacyOptions{Image: genericImage})
		r.until("worker-0", "down", 3*time.Minute, down)

		if after := r.until("worker-0", "ready", 5*time.Minute, ready); after.Talos != "1.12.6" || after.Installs != 0 {
			r.t.Fatalf("afterwards: %+v", after)
		}
	})
}

func TestLegacy_SecondSequenceIsAcknowledgedAndLockedOut(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r rig) {
		r.legacy("worker-0", model.LegacyOptions{Image: genericImage})

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		locked := false
		stop := errors.New("enough")

		err := r.Follow(r.t.Context(), "worker-0", model.Tail{Count: -1}, func(event model.Event) error {
			locked = event.Locked
			if locked {
				return stop
			}

			return nil
		})
		if !errors.Is(err, stop) {
			r.t.Fatalf("events: %v", err)
		}

		r.until("worker-0", "down", 3*time.Minute, down)

		if after := r.until("worker-0", "ready", 5*time.Minute, ready); after.Reboots != 1 {
			r.t.Fatalf("reboots: %d", after.Reboots)
		}
	})
}

func TestLegacy_FallsBack(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r rig) {
		kubernetes := &face{}
		r.SetKubernetes(kubernetes)
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}})
		r.legacy("worker-0", model.LegacyOptions{Image: genericImage})
		r.until("worker-0", "down", 3*time.Minute, down)

		state := r.until("worker-0", "ready", 5*time.Minute, ready)
		if state.Talos != "1.12.6" || state.Installs != 1 {
			r.t.Fatalf("afterwards: %+v", state)
		}

		if got := kubernetes.text(); !strings.HasSuffix(got, "uncordon worker-0") {
			r.t.Fatalf("asked of Kubernetes: %s", got)
		}
	})
}

func TestLegacy_TakesEffectBehindALostConnection(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepLegacyUpgrade, Effect: model.EffectConnectionLost, Times: 1}})

		_, err := r.LegacyUpgrade(r.t.Context(), "worker-0", model.LegacyOptions{Image: genericImage})
		if !errors.Is(err, model.ErrConnectionLost) {
			r.t.Fatalf("upgrade: %v", err)
		}

		r.until("worker-0", "down", 3*time.Minute, down)

		if state := r.until("worker-0", "ready", 5*time.Minute, ready); state.Talos != "1.13.4" {
			r.t.Fatalf("afterwards: %+v", state)
		}
	})
}

// stages returns the stages of a machine in the history, with who asked for each.
func (r rig) stages(name string) []string {
	var said []string

	for _, event := range r.log.of(name, history.KindStage) {
		word := strings.TrimSpace(event.Detail["to"] + " " + event.Detail["by"])
		if len(said) == 0 || said[len(said)-1] != word {
			said = append(said, word)
		}
	}

	return said
}

func TestLegacy_PersonWithTalosctl(t *testing.T) {
	for name, test := range map[string]struct {
		act    func(rig) error
		stages []string
		talos  string
		asked  string // of Kubernetes
	}{
		"reboots": {
			func(r rig) error { return r.RebootByHand("worker-0", model.RebootDefault) },
			[]string{"rebooting other", "booting", "running"},
			"1.13.2", "",
		},
		"upgrades": {
			func(r rig) error { return r.UpgradeByHand("worker-0", genericImage) },
			[]string{"upgrading other", "rebooting other", "booting", "running"},
			"1.13.4", "cordon worker-0, drain worker-0 5m0s, uncordon worker-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
				kubernetes := &face{}
				r.SetKubernetes(kubernetes)
				// Faults of calls do not affect people.
				r.SetFaults([]model.Fault{
					{Node: "worker-0", Step: model.StepReboot, Effect: model.EffectFail},
					{Node: "worker-0", Step: model.StepLegacyUpgrade, Effect: model.EffectFail},
				})

				if err := test.act(r); err != nil {
					r.t.Fatal(err)
				}

				if err := test.act(r); !errors.Is(err, model.ErrRefused) {
					r.t.Errorf("a second time at once: %v", err)
				}

				r.until("worker-0", "down", 3*time.Minute, down)
				state := r.until("worker-0", "ready", 5*time.Minute, ready)
				time.Sleep(time.Second)

				if state.Talos != test.talos || kubernetes.text() != test.asked || !slices.Equal(r.stages("worker-0"), test.stages) {
					r.t.Errorf("Talos %s, asked %q, stages %q", state.Talos, kubernetes.text(), r.stages("worker-0"))
				}

				for _, event := range r.log.of("worker-0", history.KindDown, history.KindInstall) {
					if event.Detail["by"] != "other" {
						r.t.Errorf("the history says %+v", event)
					}
				}

				r.SetFaults(nil)
				r.reboot("worker-0")

				downs := r.log.of("worker-0", history.KindDown)
				if len(downs) != 2 || downs[1].Detail["by"] != "client" {
					r.t.Errorf("after a reboot of ours: %v", downs)
				}
			})
		})
	}
}
