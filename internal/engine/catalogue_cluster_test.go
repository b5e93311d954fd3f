// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Nodes below Talos 1.13 refuse what the guards refuse before they ask: of two
// members neither may go, and none while another has not started.
func TestCatalogue12EtcdIsCheckedBeforeTheNodesDo(t *testing.T) {
	for _, talos := range []string{fromLegacy, fromLifecycle} {
		inCluster(t, setup{Options: model.Options{Talos: talos, ControlPlanes: 2, Workers: 1}}, func(r *rig) {
			w := r.Worker("run-1")

			err := w.Apply(context.Background(), to(toLifecycle))
			if !errors.Is(err, engine.ErrBlocked) || !strings.Contains(err.Error(), cluster.CheckTwoMembers) {
				t.Errorf("%s: got %v, want it refused", talos, err)
			}

			if _, mutating := w.Client.Calls(); mutating != 0 {
				t.Errorf("%s: the refused run made %d mutating calls", talos, mutating)
			}
		})
	}

	for _, legacy := range []bool{false, true} {
		row{
			node: "cp-1", legacy: legacy, want: engine.ErrBlocked, says: []string{"has never started", "talosctl etcd members"}, untouched: true, most: soon,
			twist: func(_ *rig, seen *twisted) {
				seen.etcd = func(view *cluster.EtcdView) error {
					for index := range view.Members {
						if view.Members[index].ID == view.Status.MemberID {
							view.Members[index].Name = ""
						}
					}

					return nil
				}
			},
		}.tried(t)
	}
}

func TestCatalogue14EtcdWithoutLeaderIsNotTouched(t *testing.T) {
	row{
		node: "cp-1", fault: model.Fault{Step: model.StepEtcd, Effect: model.EffectNoLeader}, want: engine.ErrBlocked,
		says: []string{"leader", "talosctl"}, untouched: true, most: soon,
	}.tried(t)
}

func TestCatalogue15AlarmIsNotRolledOver(t *testing.T) {
	row{
		node: "cp-1", fault: model.Fault{Step: model.StepEtcd, Effect: model.EffectAlarmNoSpace}, want: engine.ErrBlocked,
		says: []string{"NOSPACE", "talosctl etcd alarm disarm"}, untouched: true, most: soon,
	}.tried(t)
}

func TestCatalogue16LearnerIsNotRolledOver(t *testing.T) {
	row{
		node: "cp-1", fault: model.Fault{Step: model.StepEtcd, Effect: model.EffectLearner}, want: engine.ErrBlocked,
		says: []string{"learner", "talosctl etcd members"}, untouched: true, most: soon,
	}.tried(t)
}

// absent is a member of etcd that does not answer after the boot of its node.
func absent(lasts time.Duration) func(*rig, *twisted) {
	return func(r *rig, seen *twisted) {
		var since time.Time

		seen.etcd = func(*cluster.EtcdView) error {
			if r.State(seen.node).BootID == seen.boot {
				return nil
			}

			seen.mu.Lock()
			defer seen.mu.Unlock()

			if since.IsZero() {
				since = time.Now()
			}

			if lasts != 0 && time.Since(since) > lasts {
				return nil
			}

			return saying(cluster.ErrUnreachable, "failed to create etcd client: context deadline exceeded")
		}
	}
}

// No other control plane is touched before the member is back.
func TestCatalogue17MemberIsWaitedFor(t *testing.T) {
	row{node: "cp-1", twist: absent(12 * time.Minute)}.tried(t)
	row{
		node: "cp-1", twist: absent(0), armed: true, want: context.DeadlineExceeded,
		says: []string{"etcd to be healthy with cp-1", "failed to create etcd client", "terraform apply again"}, most: time.Hour + 30*time.Minute,
	}.tried(t)
}

func TestCatalogue29RolesAreLookedAtFirst(t *testing.T) {
	for _, role := range []string{"os:reader", "os:operator"} {
		inCluster(t, setup{}, func(r *rig) {
			client := r.Client("run-1").WithRoles(role)

			failed := failure(t, r.WorkerOver(client, client, client).Apply(context.Background(), to(toLifecycle)), engine.ErrBlocked, "")
			if !strings.Contains(failed.Error(), role) || !strings.Contains(failed.Error(), "os:admin") {
				t.Errorf("%s: %v, want it to name the role that is there and the one that is missing", role, failed)
			}

			if _, mutating := client.Calls(); mutating != 0 {
				t.Errorf("%s: the refused run made %d mutating calls", role, mutating)
			}

			r.Must(r.Worker("run-2"), to(toLifecycle))
			r.At(toLifecycle)
		})
	}
}

func TestCatalogue33BusyConfigurationIsAskedAgain(t *testing.T) {
	row{kubernetes: true, fault: model.Fault{Step: model.StepApply, Effect: model.EffectBusy, Times: 2}}.tried(t)
	row{
		kubernetes: true, fault: once(model.StepApply, model.EffectFail, 0), want: cluster.ErrRefused,
		says: []string{"refused"}, most: time.Hour,
	}.tried(t)
}

func TestCatalogue34OtherWriterIsNamed(t *testing.T) {
	row{
		node: "cp-1", kubernetes: true, fault: once(model.StepApply, model.EffectOverwritten, 0), want: engine.ErrForeignWriter,
		says: []string{"data.talosupgrade_current_versions"},
	}.tried(t)
}

func TestCatalogue35FlappingAPIServerIsWaitedFor(t *testing.T) {
	for _, kubernetes := range []bool{false, true} {
		row{node: "cp-1", kubernetes: kubernetes, fault: model.Fault{Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 2, For: 45 * time.Second}}.tried(t)
		row{kubernetes: kubernetes, fault: model.Fault{Step: model.StepPatch, Effect: model.EffectConnectionLost, Times: 3}}.tried(t)
	}
}

func TestCatalogue36StaticPodThatNeverUpdates(t *testing.T) {
	for effect, says := range map[model.Effect]string{model.EffectNeverReady: "kube-apiserver", model.EffectCrashLoop: "CrashLoopBackOff"} {
		fault := once(model.StepStaticPod, effect, 0)
		fault.Component = model.APIServerName

		row{node: "cp-1", kubernetes: true, fault: fault, want: context.DeadlineExceeded, says: []string{says, "kube-apiserver"}}.tried(t)
	}
}

func TestCatalogue37KubeletThatIsNotReady(t *testing.T) {
	row{kubernetes: true, node: "worker-1", fault: once(model.StepKubeletRestart, model.EffectStaysDown, 0), want: context.DeadlineExceeded, says: []string{"kubelet"}}.tried(t)
	row{kubernetes: true, node: "worker-1", fault: once(model.StepKubeletRestart, model.EffectNotReady, 0), want: context.DeadlineExceeded, says: []string{"KubeletNotReady"}}.tried(t)
	row{
		fault: once(model.StepBoot, model.EffectNotReady, 0), want: engine.ErrUnhealthy, armed: true,
		says: []string{"not ready"}, most: time.Hour + 30*time.Minute,
	}.tried(t)
}

func TestCatalogue38BlockedDrainIsNamed(t *testing.T) {
	fault := model.Fault{Node: "worker-1", Step: model.StepDrain, Effect: model.EffectBlockedByBudget}

	inCluster(t, setup{Options: model.Options{Seed: 3, Faults: []model.Fault{fault}}}, func(r *rig) {
		begun := time.Now()
		w := r.Worker("run-1")
		row{want: engine.ErrDrain, says: []string{"PodDisruptionBudget", "drain.on_timeout"}}.failed(r, "worker-1", w.Apply(context.Background(), undrained(to(toLifecycle))), time.Since(begun))
		r.Sound()

		// Each try costs a budget nothing, and the API server something.
		const most = 5*60/5 + 15

		if tries := len(r.Judge.Of(history.KindEvict)); tries == 0 || tries > most {
			t.Errorf("%d evictions were tried, want at most %d", tries, most)
		}

		r.World().SetFaults(nil)
		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// A machine that registers no Node object cannot be cordoned, drained or seen to
// be Ready, so that it is named and left to its owner.
func TestCatalogue39MachineWithoutNodeObject(t *testing.T) {
	row{
		node: "worker-1", want: engine.ErrBlocked, says: []string{"no Node object", "Let it join, or take it out"}, untouched: true, most: soon,
		twist: func(_ *rig, seen *twisted) {
			seen.machine = func(machine *cluster.Machine) error {
				machine.NodeName = ""

				return nil
			}
			seen.nodes = func(nodes []cluster.KubeNode) []cluster.KubeNode { return without(nodes, seen.node) }
		},
	}.tried(t)
}

func without(nodes []cluster.KubeNode, name string) []cluster.KubeNode {
	var left []cluster.KubeNode

	for _, node := range nodes {
		if node.Name != name {
			left = append(left, node)
		}
	}

	return left
}

// What discovery says is late: it misses machines that are there, and lists those
// that are not. Versions and addresses come from elsewhere.
func TestCatalogue44DiscoveryLags(t *testing.T) {
	row{node: "worker-1", twist: func(_ *rig, seen *twisted) {
		seen.members = func(members []cluster.Member) ([]cluster.Member, error) {
			var left []cluster.Member

			for _, member := range members {
				if member.Hostname != seen.node {
					left = append(left, member)
				}
			}

			return left, nil
		}
	}}.tried(t)
	row{node: "worker-1", twist: func(_ *rig, seen *twisted) {
		seen.members = func([]cluster.Member) ([]cluster.Member, error) {
			return nil, saying(cluster.ErrUnreachable, "discovery does not answer")
		}
	}}.tried(t)

	// A machine that went for good is named, so that nobody takes it for one that
	// was forgotten. Of control planes that has to be certain.
	for node, role := range map[string]cluster.Role{"worker-9": cluster.Worker, "cp-9": cluster.ControlPlane} {
		inCluster(t, setup{}, func(r *rig) {
			client := r.Client("run-1")

			seen := &twisted{Client: client, members: func(members []cluster.Member) ([]cluster.Member, error) {
				return append(members, cluster.Member{Hostname: node, Role: role, Addresses: []string{"10.5.0.99"}}), nil
			}}

			if role == cluster.Worker {
				w := r.WorkerOver(client, seen, seen)
				r.Must(w, to(toLifecycle))
				r.At(toLifecycle)

				return
			}

			failed := failure(t, r.WorkerOver(client, seen, seen).Apply(context.Background(), to(toLifecycle)), engine.ErrBlocked, node)
			if !strings.Contains(failed.Error(), "10.5.0.99") || !strings.Contains(failed.Error(), "remove it from the cluster") {
				t.Errorf("%v, want the address and what to do", failed)
			}

			if _, mutating := client.Calls(); mutating != 0 {
				t.Errorf("the refused run made %d mutating calls", mutating)
			}

			r.Must(r.Worker("run-2"), to(toLifecycle))
			r.At(toLifecycle)
		})
	}
}
