// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func troubled(node string, step model.Step, effect model.Effect, lasts time.Duration) []model.Fault {
	return []model.Fault{{Node: node, Step: step, Effect: effect, Times: 1, For: lasts}}
}

// troubles returns the faults of a node in the history, as "step effect", with " over" at its end.
func (r rig) troubles(name string) []string {
	var said []string

	for _, event := range r.log.of(name, history.KindFault) {
		said = append(said, strings.TrimSpace(event.Detail["step"]+" "+event.Detail["effect"]+" "+event.Detail["outcome"]))
	}

	return said
}

func TestTrouble_MemberShowsItAndGetsWell(t *testing.T) {
	status := func(holds func(model.EtcdStatus) bool) func(rig) bool {
		return func(r rig) bool { return holds(r.status("cp-1")) }
	}
	alarm := func(kind string) func(rig) bool {
		return func(r rig) bool {
			alarms, err := r.EtcdAlarms(r.t.Context(), "cp-2")
			if err != nil {
				r.t.Fatal(err)
			}

			listed := slices.Equal(alarms, []model.EtcdAlarm{{Member: r.node("cp-1").EtcdID, Alarm: kind}})

			return listed && strings.Contains(strings.Join(r.status("cp-1").Errors, ","), "alarm:"+kind)
		}
	}

	for effect, shows := range map[model.Effect]func(rig) bool{
		model.EffectAlarmNoSpace: alarm("NOSPACE"),
		model.EffectAlarmCorrupt: alarm("CORRUPT"),
		model.EffectLagging:      status(func(s model.EtcdStatus) bool { return s.Index-s.Applied == model.Lag }),
		model.EffectBig:          status(func(s model.EtcdStatus) bool { return s.DBSize == model.BigDatabase && s.DBSizeInUse > s.DBSize/2 }),
		model.EffectReports:      status(func(s model.EtcdStatus) bool { return len(s.Errors) == 1 && s.Leader != 0 }),
		model.EffectNoLeader: func(r rig) bool {
			_, err := r.EtcdMembers(r.t.Context(), "cp-1")
			own, other := r.status("cp-1"), r.status("cp-2")

			return errors.Is(err, model.ErrNoLeader) && own.Leader == 0 && len(own.Errors) == 1 && other.Leader != 0
		},
		model.EffectSilent: func(r rig) bool {
			_, status := r.EtcdStatus(r.t.Context(), "cp-1")
			_, members := r.EtcdMembers(r.t.Context(), "cp-1")
			_, version := r.Version(r.t.Context(), "cp-1")

			return errors.Is(status, model.ErrUnreachable) && errors.Is(members, model.ErrUnreachable) && version == nil
		},
		model.EffectLearner: func(r rig) bool {
			members, err := r.EtcdMembers(r.t.Context(), "cp-0")
			if err != nil || len(members) != 3 {
				r.t.Fatalf("%v, %v", members, err)
			}

			return members[1].Learner && !members[0].Learner && r.status("cp-1").Learner && !r.node("cp-1").EtcdHealthy
		},
	} {
		for name, test := range map[string]struct {
			lasts time.Duration
			end   func(rig)
		}{
			"after its duration":          {3 * time.Minute, func(rig) { time.Sleep(2*time.Minute + time.Second) }},
			"when the script is replaced": {0, func(r rig) { r.SetFaults(nil) }},
		} {
			t.Run(string(effect)+" "+name, func(t *testing.T) {
				inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
					if shows(r) {
						r.t.Fatal("it shows before it begins")
					}

					r.SetFaults(troubled("cp-1", model.StepEtcd, effect, test.lasts))
					time.Sleep(time.Minute)

					if !shows(r) || r.node("cp-0").Stage != model.StageRunning {
						r.t.Errorf("it does not show: %+v", r.node("cp-1"))
					}

					test.end(r)

					if shows(r) {
						r.t.Error("it shows after its end")
					}

					word := "etcd " + string(effect)
					if said := r.troubles("cp-1"); !slices.Equal(said, []string{word, word + " over"}) {
						r.t.Errorf("the history says %q", said)
					}
				})
			})
		}
	}
}

func TestTrouble_LearnerHasNoVote(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		r.SetFaults(troubled("cp-0", model.StepEtcd, model.EffectLearner, 0))

		if status := r.status("cp-1"); status.Leader != r.node("cp-1").EtcdID {
			r.t.Errorf("a learner leads: %+v", status)
		}

		if _, err := r.Reboot(r.t.Context(), "cp-2", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("cp-2", "down", time.Minute, down)

		if r.EtcdQuorum() {
			r.t.Error("one voter of two has quorum")
		}

		r.until("cp-2", "ready", 5*time.Minute, ready)

		if !r.EtcdQuorum() || r.node("cp-0").EtcdHealthy {
			r.t.Error("the cluster is not as it was before")
		}
	})

	inWorld(t, model.Options{ControlPlanes: 2, Faults: troubled(model.AnyNode, model.StepEtcd, model.EffectLearner, 0)}, func(r rig) {
		if status := r.status("cp-1"); !r.EtcdQuorum() || status.Learner || status.Leader != status.Member {
			r.t.Errorf("the last voter: %+v", status)
		}
	})
}

func TestTrouble_OutlivesABootAndAnUnchangedScript(t *testing.T) {
	inWorld(t, model.Options{
		ControlPlanes: 3, Workers: 1,
		Faults: slices.Concat(
			troubled(model.AnyNode, model.StepEtcd, model.EffectLagging, 0), troubled("cp-1", model.StepDisk, model.EffectFull, time.Hour),
		),
	}, func(r rig) {
		r.reboot("cp-1")
		r.SetFaults(troubled("cp-1", model.StepEtcd, model.EffectLagging, 0))
		time.Sleep(time.Minute)

		if status := r.status("cp-1"); status.Index-status.Applied < model.Lag {
			r.t.Errorf("after its boot: %+v", status)
		}

		for name, want := range map[string][]string{
			"cp-0":     {"etcd lagging", "etcd lagging over"},
			"cp-1":     {"etcd lagging", "disk full"},
			"worker-0": nil,
		} {
			if said := r.troubles(name); !slices.Equal(said, want) {
				r.t.Errorf("the history says %q of %s, want %q", said, name, want)
			}
		}

		name, err := r.AddNode(model.NodeOptions{Role: model.ControlPlane})
		if err != nil || name != "cp-3" || len(r.troubles(name)) != 0 {
			r.t.Errorf("%q joined with %v, %v", name, r.troubles(name), err)
		}
	})
}

func TestTrouble_LastsAsTheLatestScriptSays(t *testing.T) {
	for name, test := range map[string]struct {
		first, then time.Duration // 0 for good
		after       time.Duration // the second script
		over        bool
	}{
		"longer":         {2 * time.Minute, 10 * time.Minute, 9 * time.Minute, false},
		"longer, and on": {2 * time.Minute, 10 * time.Minute, 11 * time.Minute, true},
		"shorter":        {time.Hour, 2 * time.Minute, 3 * time.Minute, true},
		"for good":       {2 * time.Minute, 0, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
				r.SetFaults(troubled("worker-0", model.StepDisk, model.EffectFull, test.first))
				time.Sleep(time.Minute)
				r.SetFaults(troubled("worker-0", model.StepDisk, model.EffectFull, test.then))
				time.Sleep(test.after)

				want := []string{"disk full"}
				if test.over {
					want = append(want, "disk full over")
				}

				full := r.node("worker-0").Vitals.Disk.Available == model.FullDisk
				if said := r.troubles("worker-0"); full == test.over || !slices.Equal(said, want) {
					r.t.Errorf("full: %t, the history says %q", full, said)
				}
			})
		})
	}
}

func TestTrouble_MemberStopsTheLegacyUpgrade(t *testing.T) {
	for _, effect := range []model.Effect{model.EffectLearner, model.EffectSilent, model.EffectNoLeader} {
		inWorld(t, model.Options{ControlPlanes: 3, Talos: "1.12.6", Faults: troubled("cp-1", model.StepEtcd, effect, 0)}, func(r rig) {
			_, err := r.LegacyUpgrade(r.t.Context(), "cp-0", model.LegacyOptions{Image: genericImage})
			if !errors.Is(err, model.ErrRefused) || !strings.Contains(err.Error(), "is not healthy") {
				r.t.Errorf("%s: %v", effect, err)
			}
		})
	}
}
