// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// verdictOf is what a preflight says of one check.
type verdictOf string

const (
	passed  verdictOf = "passed"
	advised verdictOf = "advised"
	failed  verdictOf = "failed"
	untold  verdictOf = "unknown"
)

// examined is a cluster that a preflight looks at.
type examined struct {
	*rig

	client   *ports.Client
	liar     *liar
	registry *ports.Registry
	beside   *owned
	request  engine.Request
}

// examination is one row of the table: a cluster in a condition, and what the
// check says of it.
type examination struct {
	check string
	// condition says in which way the cluster is not as it should be.
	condition string
	setup     setup
	prepare   func(*examined)
	want      verdictOf
	// node is the one named, if one is.
	node string
	says []string
}

// examine makes a preflight.
func (e *examined) examine() engine.Examination {
	e.T.Helper()

	made := engine.New(engine.Options{
		Talos: e.liar, Kubernetes: e.liar, Removals: e.client, Manifests: e.client, Workloads: e.client, Registry: e.registry,
		Operator: operator.New(e.beside.of, e.beside.api), Run: "run-1", ClusterName: "test",
	})

	observed, err := made.Observe(context.Background())
	if err != nil {
		e.T.Fatal(err)
	}

	examined := made.Preflight(context.Background(), observed, plan.Make(observed, e.request.Target, e.request.Policy), e.request, engine.Applying)
	wording.NoteFindings(e.T, examined.Findings)

	return examined
}

// newExamined is a cluster without pods of its own, that is to be upgraded.
func newExamined(r *rig) *examined {
	client := r.Client("run-1")

	made := &examined{rig: r, client: client, liar: &liar{Client: client}, registry: ports.NewRegistry(), request: to(toLifecycle)}
	made.beside = newOwned(r, played.SeedVitistack)
	made.request.Gates = []cluster.Gate{&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return true, "", nil }}}
	made.request.Window = interval{from: time.Now().Add(-time.Hour), to: time.Now().Add(time.Hour)}
	made.request.Snapshots = ports.NewVault()

	return made
}

// verdict is the worst that an examination says of a check, and the finding.
func verdict(found engine.Examination, check string) (verdictOf, cluster.Finding) {
	worst, said := passed, cluster.Finding{}

	for _, finding := range found.Findings {
		if finding.Check != check {
			continue
		}

		switch {
		case finding.Unknown && worst != failed:
			worst, said = untold, finding
		case finding.Severity != cluster.Advice && !finding.Unknown:
			worst, said = failed, finding
		case worst == passed:
			worst, said = advised, finding
		}
	}

	return worst, said
}

// TestPreflight_EveryCheckPassesOnAHealthyCluster also shows that every check is made.
func TestPreflight_EveryCheckPassesOnAHealthyCluster(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		e := newExamined(r)
		e.request = both(toLifecycle, toKubernetes)
		healthy := newExamined(r)
		e.request.Gates, e.request.Window, e.request.Snapshots = healthy.request.Gates, healthy.request.Window, healthy.request.Snapshots

		e.request.Policy.OwnBootID = "elsewhere"

		found := e.examine()

		for _, finding := range found.Findings {
			t.Errorf("found %s", finding)
		}

		for _, check := range cluster.Checks() {
			// These are about names and identities that the request gives: without
			// one there is nothing to look at.
			named := slices.Contains([]string{cluster.CheckIdentity, cluster.CheckCanary, cluster.CheckNodeOverrides, cluster.CheckSelectors}, check.Name)
			if !named && !slices.Contains(found.Made, check.Name) {
				t.Errorf("the check %s was not made", check.Name)
			}
		}

		r.Sound()
	})
}

// TestPreflight_EveryCheckTellsWhatItFinds drives each check to a failure and, where there
// is something that it could fail to learn, to not knowing.
func TestPreflight_EveryCheckTellsWhatItFinds(t *testing.T) {
	t.Parallel()

	rows := slices.Concat(nodeExaminations(), etcdExaminations(), planExaminations(), momentExaminations(), operatorExaminations())

	for _, row := range rows {
		t.Run(row.check+"/"+row.condition, func(t *testing.T) {
			inCluster(t, row.setup, func(r *rig) {
				e := newExamined(r)

				if row.prepare != nil {
					row.prepare(e)
				}

				found := e.examine()

				got, finding := verdict(found, row.check)
				if got != row.want || row.node != "" && finding.Node != row.node {
					t.Errorf("%s: %s on %q, want %s on %q; all: %v", row.check, got, finding.Node, row.want, row.node, found.Findings)
				}

				for _, want := range row.says {
					if !strings.Contains(finding.String(), want) {
						t.Errorf("%q does not say %q", finding, want)
					}
				}

				if row.want != passed && (finding.Found == "" || finding.Remedy == "" && finding.Severity != cluster.Advice) {
					t.Errorf("no finding or no remedy: %+v", finding)
				}

				if !slices.Contains(found.Made, row.check) {
					t.Errorf("%s is not among the checks that were made: %q", row.check, found.Made)
				}

				if _, mutating := e.client.Calls(); mutating > 0 {
					t.Errorf("a preflight made %d mutating calls", mutating)
				}
			})
		})
	}

	for _, check := range cluster.Checks() {
		if !slices.ContainsFunc(rows, func(row examination) bool { return row.check == check.Name && row.want != passed }) &&
			check.Name != cluster.CheckIdentity {
			t.Errorf("no row drives the check %s to anything", check.Name)
		}
	}
}

// TestPreflight_SkippedChecksAreAdvice shows for each failure that the policy may skip that
// it stops an apply, and that skipping makes it advice which is still told.
func TestPreflight_SkippedChecksAreAdvice(t *testing.T) {
	t.Parallel()

	for _, row := range slices.Concat(nodeExaminations(), etcdExaminations(), planExaminations(), momentExaminations(), operatorExaminations()) {
		if row.want != failed && row.want != untold {
			continue
		}

		t.Run(row.check+"/"+row.condition, func(t *testing.T) {
			known, _ := cluster.CheckNamed(row.check)

			inCluster(t, row.setup, func(r *rig) {
				e := newExamined(r)
				e.request.Policy.SkipChecks = map[string]bool{row.check: true}

				if row.prepare != nil {
					row.prepare(e)
				}

				told := false

				for _, finding := range e.examine().Findings {
					if finding.Check != row.check || finding.Severity == cluster.Advice && !finding.Skipped {
						continue
					}

					told = true

					// Nodes of the legacy API check this themselves.
					if blocks := finding.Severity != cluster.Advice; blocks != (known.Firm != "" || finding.Firm) {
						t.Errorf("blocks: %t, although the check is firm: %q: %s", blocks, known.Firm, finding)
					}
				}

				if !told && row.want != untold {
					t.Errorf("the check %s says nothing when it is skipped", row.check)
				}
			})
		})
	}
}

// schematicOfTests is one with extensions.
const schematicOfTests = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// faulty is a cluster with one fault.
func faulty(node string, step model.Step, effect model.Effect) setup {
	return setup{Options: model.Options{Faults: []model.Fault{{Node: node, Step: step, Effect: effect}}}}
}

// answering has all calls of a method answered with an error.
func answering(method string, answer error) func(*examined) {
	return func(e *examined) { e.client.Intercept(withCall(method, answer)) }
}

func nodeExaminations() []examination {
	return []examination{
		{
			check: cluster.CheckTalosAPI, condition: "a node does not answer", setup: faulty("worker-1", model.StepObserve, model.EffectUnreachable),
			want: failed, node: "worker-1", says: []string{"did not answer"},
		},
		{
			check: cluster.CheckTalosAPI, condition: "a node does not say what it runs", want: untold, node: "worker-1", says: []string{"does not say"},
			prepare: func(e *examined) {
				e.liar.machine = func(m *cluster.Machine) {
					if m.NodeName == "worker-1" {
						m.Talos = version.Version{}
					}
				}
			},
		},
		{check: cluster.CheckKubernetesAPI, condition: "it does not answer", prepare: answering("Nodes", cluster.ErrUnreachable), want: failed, says: []string{"did not answer"}},
		{
			check: cluster.CheckRoles, condition: "a reader", want: failed, says: []string{"os:reader", "os:admin"},
			prepare: func(e *examined) { e.client.WithRoles("os:reader") },
		},
		{
			check: cluster.CheckNodesReady, condition: "cordons use up what may be unavailable", want: failed, says: []string{"worker-0"},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 3}},
			prepare: func(e *examined) {
				for _, node := range []string{"worker-0", "worker-1"} {
					if err := e.CordonAsPerson(node, true); err != nil {
						e.T.Fatal(err)
					}
				}
			},
		},
		{check: cluster.CheckNodesReady, condition: "a control plane is not Ready", setup: faulty("cp-1", model.StepKubelet, model.EffectNotReady), want: failed, node: "cp-1"},
		{check: cluster.CheckDiskSpace, condition: "it is full", setup: faulty("worker-0", model.StepDisk, model.EffectFull), want: failed, node: "worker-0", says: []string{"100 MiB free for images"}},
		{check: cluster.CheckDiskSpace, condition: "the kubelet complains", setup: faulty("worker-0", model.StepDisk, model.EffectPressure), want: failed, node: "worker-0", says: []string{"DiskPressure"}},
		{check: cluster.CheckDiskSpace, condition: "it cannot be read", setup: faulty("worker-0", model.StepDisk, model.EffectUnreadable), want: untold, node: "worker-0", says: []string{"input/output error", "reports no DiskPressure"}},
		{check: cluster.CheckDiskSpace, condition: "a mount hangs", setup: faulty("worker-0", model.StepDisk, model.EffectStall), want: untold, node: "worker-0", says: []string{"no answer within 3s", "NFS"}},
		{
			check: cluster.CheckDiskSpace, condition: "it cannot be read, and the kubelet complains", want: failed, node: "worker-0", says: []string{"reports DiskPressure"},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Faults: []model.Fault{
				{Node: "worker-0", Step: model.StepDisk, Effect: model.EffectUnreadable}, {Node: "worker-0", Step: model.StepDisk, Effect: model.EffectPressure},
			}}},
		},
		{check: cluster.CheckTimeSync, condition: "a clock runs free", setup: faulty("cp-0", model.StepClock, model.EffectUnsynced), want: failed, node: "cp-0", says: []string{"not synchronised"}},
		{check: cluster.CheckTimeSync, condition: "nobody keeps it", setup: faulty("cp-0", model.StepClock, model.EffectDisabled), want: advised, node: "cp-0", says: []string{"switched off"}},
		{check: cluster.CheckTimeSync, condition: "it cannot be read", setup: faulty("cp-0", model.StepClock, model.EffectUnreadable), want: untold, node: "cp-0"},
		{
			check: cluster.CheckControlPlane, condition: "a scheduler is not Ready", want: failed, node: "cp-2", says: []string{"kube-scheduler"},
			prepare: func(e *examined) {
				e.liar.pods = func(pod *cluster.ComponentPod) {
					if pod.Node == "cp-2" && pod.Component == cluster.Scheduler {
						pod.Ready, pod.Trouble = false, "CrashLoopBackOff: back-off 5m0s"
					}
				}
			},
		},
		{
			check: cluster.CheckExternalChanges, condition: "a person reboots a node", want: failed, node: "worker-1",
			prepare: func(e *examined) {
				if err := e.World().RebootByHand("worker-1", model.RebootDefault); err != nil {
					e.T.Fatal(err)
				}

				e.Until("going down", time.Minute, func() bool { return e.State("worker-1").Stage == model.StageRebooting })
			},
		},
		{
			check: cluster.CheckPendingInstall, condition: "a node fell back before", want: failed, node: "worker-0", says: []string{"fell back", "retry"},
			setup: faulty("worker-0", model.StepBoot, model.EffectFallback),
			prepare: func(e *examined) {
				before := e.Worker("run-0")
				if err := before.Apply(context.Background(), e.request); err == nil {
					e.T.Fatal("the node did not fall back")
				}
			},
		},
		{check: cluster.CheckPendingInstall, condition: "the journal cannot be read", prepare: answering("Journal", cluster.ErrDenied), want: untold},
	}
}

func etcdExaminations() []examination {
	return []examination{
		{check: cluster.CheckEtcdMembers, condition: "a learner", setup: faulty("cp-1", model.StepEtcd, model.EffectLearner), want: failed, says: []string{"learner"}},
		{check: cluster.CheckEtcdQuorum, condition: "no leader", setup: faulty("cp-1", model.StepEtcd, model.EffectNoLeader), want: failed, node: "cp-1", says: []string{"leader"}},
		{check: cluster.CheckEtcdQuorum, condition: "a member that reports errors", setup: faulty("cp-1", model.StepEtcd, model.EffectReports), want: failed, node: "cp-1"},
		{check: cluster.CheckEtcdQuorum, condition: "a member that is silent", setup: faulty("cp-1", model.StepEtcd, model.EffectSilent), want: untold, node: "cp-1"},
		{check: cluster.CheckEtcdAlarms, condition: "no space", setup: faulty("cp-1", model.StepEtcd, model.EffectAlarmNoSpace), want: failed, says: []string{"NOSPACE"}},
		{check: cluster.CheckEtcdAlarms, condition: "corrupt", setup: faulty("cp-1", model.StepEtcd, model.EffectAlarmCorrupt), want: failed, says: []string{"CORRUPT"}},
		{check: cluster.CheckEtcdRaftLag, condition: "a member lags", setup: faulty("cp-1", model.StepEtcd, model.EffectLagging), want: failed, node: "cp-1", says: []string{"applied"}},
		{check: cluster.CheckEtcdDBSize, condition: "the database is big", setup: faulty("cp-1", model.StepEtcd, model.EffectBig), want: failed, node: "cp-1", says: []string{"GiB"}},
		{check: cluster.CheckTwoMembers, condition: "two members", setup: setup{Options: model.Options{ControlPlanes: 2, Workers: 1}}, want: failed, says: []string{"two members"}},
		{check: cluster.CheckSingleControlPlane, condition: "one control plane", setup: setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, want: advised, node: "cp-0"},
	}
}

func planExaminations() []examination {
	schematic := model.Options{Schematic: schematicOfTests, ControlPlanes: 3, Workers: 1}
	secure := schematic
	secure.SecureBoot = true

	return []examination{
		{check: cluster.CheckVersions, condition: "a downgrade", prepare: func(e *examined) { e.request.Target.Talos = version.MustParse("1.12.6") }, want: failed, says: []string{"newer than the target"}},
		{
			check: cluster.CheckCompatibility, condition: "Kubernetes is too old", setup: setup{Options: model.Options{Kubernetes: "1.31.4"}}, want: failed,
			prepare: func(e *examined) { e.request.Target.Talos = version.MustParse("1.14.1") },
		},
		{
			check: cluster.CheckDefects, condition: "a version that was withdrawn", setup: setup{Options: model.Options{Talos: "1.13.0"}}, want: failed,
			says:    []string{"Talos 1.13.1 was broken", "Choose 1.13.2 or newer"},
			prepare: func(e *examined) { e.request.Target.Talos = version.MustParse("1.13.1") },
		},
		{check: cluster.CheckComponentImages, condition: "not pinned", setup: setup{Options: model.Options{Unpinned: true}}, want: failed, says: []string{"does not pin"}},
		{check: cluster.CheckComponentImages, condition: "the configuration cannot be read", want: untold, prepare: func(e *examined) { e.liar.machine = func(m *cluster.Machine) { m.Config = nil } }},
		{
			check: cluster.CheckSchematic, condition: "the extensions would be lost", setup: setup{Options: schematic}, want: failed,
			prepare: func(e *examined) { e.request.Target.InstallerImage = "ghcr.io/siderolabs/installer" },
		},
		{check: cluster.CheckSchematic, condition: "the configuration cannot be read", want: untold, prepare: func(e *examined) { e.liar.machine = func(m *cluster.Machine) { m.Config = nil } }},
		{
			check: cluster.CheckConfiguration, condition: "an argument that the next Talos refuses", want: failed, says: []string{"tls-min-version", "no API server"},
			prepare: func(e *examined) {
				e.request.Target.Talos = version.MustParse("1.14.1")
				e.liar.machine = func(m *cluster.Machine) { m.Config.APIServerArguments = []string{"tls-min-version"} }
			},
		},
		{
			check: cluster.CheckConfiguration, condition: "a kernel module that the next Talos does not load", want: failed, setup: setup{Options: model.Options{Talos: "1.14.1"}},
			says: []string{"IPVS mode", "ip_vs"},
			prepare: func(e *examined) {
				e.request.Target.Talos = version.MustParse("1.15.0")
				e.liar.machine = func(m *cluster.Machine) { m.Config.IPVS = true }
			},
		},
		{
			check: cluster.CheckConfiguration, condition: "the configuration cannot be read", want: untold,
			prepare: func(e *examined) {
				e.request.Target.Talos = version.MustParse("1.14.1")
				e.liar.machine = func(m *cluster.Machine) { m.Config = nil }
			},
		},
		{
			check: cluster.CheckSecureBoot, condition: "an image without it", setup: setup{Options: secure}, want: failed,
			prepare: func(e *examined) {
				e.request.Target.InstallerImage = "factory.talos.dev/metal-installer/" + schematicOfTests
			},
		},
		{check: cluster.CheckSecureBoot, condition: "a node does not tell", setup: faulty("worker-0", model.StepSecurityState, model.EffectUnreadable), want: untold, node: "worker-0"},
		{
			check: cluster.CheckInstallerImage, condition: "the registry does not have it", want: failed, says: []string{"does not have", ":v" + toLifecycle},
			prepare: func(e *examined) { e.registry.Missing("ghcr.io/siderolabs/installer:v" + toLifecycle) },
		},
		{
			check: cluster.CheckInstallerImage, condition: "the registry is out of reach", want: untold, says: []string{"unable to find out from here", "one node of each kind pulls it"},
			prepare: func(e *examined) { e.registry.Unreachable("ghcr.io/siderolabs/installer:v" + toLifecycle) },
		},
		{
			check: cluster.CheckRemovals, condition: "a flag in use", want: failed, says: []string{"pod-infra-container-image"},
			prepare: func(e *examined) {
				e.request.Target.Kubernetes = version.MustParse(toKubernetes)
				e.SetRemovals([]cluster.Removal{{Kind: "flag", Name: "pod-infra-container-image", Component: cluster.Kubelet, In: version.MustParse(toKubernetes)}})
			},
		},
		{
			check: cluster.CheckRemovals, condition: "a gate that is locked to another value", want: failed,
			says: []string{"sets the feature gate ImageVolume to false, which Kubernetes 1.35 has locked to true", "Take it out of extraArgs in the machine configuration first."},
			prepare: func(e *examined) {
				yes, target := true, version.MustParse(toKubernetes)
				e.request.Target.Kubernetes = target
				e.SetRemovals([]cluster.Removal{{Kind: "feature gate", Name: "ImageVolume", Component: cluster.APIServer, Locked: &yes, In: target}})
			},
		},
		{
			check: cluster.CheckRemovals, condition: "a gate that nobody knows", want: advised, says: []string{"sets the feature gate NeverHeardOf", "would not start"},
			prepare: func(e *examined) {
				target := version.MustParse(toKubernetes)
				e.request.Target.Kubernetes = target
				e.SetRemovals([]cluster.Removal{{Kind: "feature gate", Name: "NeverHeardOf", Component: cluster.Scheduler, Unknown: true, In: target}})
			},
		},
		{
			check: cluster.CheckRemovals, condition: "a static pod that its kubelet will not run", want: failed,
			says: []string{"its static pod default-mirror refers to secrets of the Kubernetes API, and a kubelet of Kubernetes 1.35 does not run such a pod", "machine.files"},
			prepare: func(e *examined) {
				target := version.MustParse(toKubernetes)
				e.request.Target.Kubernetes = target
				e.SetRemovals([]cluster.Removal{{Kind: "static pod", Name: "default-mirror", Component: cluster.Kubelet, Refers: "secrets", In: target}})
			},
		},
		{
			check: cluster.CheckRemovals, condition: "nobody can tell", want: untold,
			prepare: func(e *examined) {
				e.request.Target.Kubernetes = version.MustParse(toKubernetes)
				e.client.Intercept(withCall("Removals", cluster.ErrDenied))
			},
		},
		{check: cluster.CheckManifests, condition: "they may not be applied", prepare: answering("Diff", cluster.ErrDenied), want: failed},
		{check: cluster.CheckManifests, condition: "nobody can tell", prepare: answering("Diff", cluster.ErrUnreachable), want: untold},
		{
			check: cluster.CheckOwnNode, condition: "the run is on a node", want: failed, node: "worker-1", says: []string{"in the middle of its work"},
			prepare: func(e *examined) { e.request.Policy.OwnBootID = e.State("worker-1").BootID },
		},
		{check: cluster.CheckCanary, condition: "no such worker", want: failed, prepare: func(e *examined) { e.request.Policy.Canary = []string{"worker-9"} }},
		{check: cluster.CheckSelectors, condition: "two pools", want: failed, prepare: func(e *examined) {
			e.request.Policy.Pools = []cluster.Pool{{Name: "a", Selector: compute, MaxUnavailable: cluster.OneAtATime()}, {Name: "b", Selector: leading, MaxUnavailable: cluster.OneAtATime()}}
			e.give(compute, "worker-0")
			e.give(leading, "worker-0")
		}},
		{check: cluster.CheckNodeOverrides, condition: "no such node", want: failed, prepare: func(e *examined) { e.request.Policy.Hold = map[string]bool{"worker-9": true} }},
	}
}

func momentExaminations() []examination {
	gate := func(answer func(string) (bool, string, error)) func(*examined) {
		return func(e *examined) { e.request.Gates = []cluster.Gate{&userGate{timeout: time.Hour, answer: answer}} }
	}

	return []examination{
		{
			check: cluster.CheckDrain, condition: "a budget that never gives", want: failed, node: "worker-0", says: []string{"workload/precious"},
			prepare: func(e *examined) { e.AddPod("precious", "worker-0", &apiserver.Budget{MinAvailable: 1}) },
		},
		{
			check: cluster.CheckDrain, condition: "two budgets over one pod", want: failed, says: []string{"workload/web", "workload/second"},
			prepare: func(e *examined) {
				e.AddApp("web", 3, &apiserver.Budget{MinAvailable: 1})
				e.AddBudget(apiserver.Budget{App: "web", Name: "second", MinAvailable: 1})
			},
		},
		{
			check: cluster.CheckDrain, condition: "a budget whose numbers are old", want: untold,
			prepare: func(e *examined) { e.AddApp("web", 3, &apiserver.Budget{MinAvailable: 1, Stale: true}) },
		},
		{
			check: cluster.CheckDrain, condition: "a pod that nobody brings back", want: advised, says: []string{"workload/lonely"},
			prepare: func(e *examined) { e.StartPod(apiserver.PodSpec{App: "lonely", Node: "worker-0", Unmanaged: true}) },
		},
		{check: cluster.CheckDrain, condition: "the pods cannot be listed", prepare: answering("Workloads", cluster.ErrDenied), want: untold},
		{
			check: cluster.CheckLock, condition: "somebody is upgrading", want: failed, says: []string{"held by somebody", "kubectl"},
			prepare: func(e *examined) {
				if err := e.HoldLease("somebody"); err != nil {
					e.T.Fatal(err)
				}
			},
		},
		{
			check: cluster.CheckLock, condition: "somebody stopped long ago", want: advised, says: []string{"held by somebody", "takes it over"},
			prepare: func(e *examined) {
				if err := e.HoldLease("somebody"); err != nil {
					e.T.Fatal(err)
				}

				time.Sleep(5 * time.Minute)
			},
		},
		{check: cluster.CheckLock, condition: "nobody can tell", prepare: answering("Lease", cluster.ErrDenied), want: untold},
		{
			check: cluster.CheckSuspended, condition: "somebody has suspended the upgrades", want: failed,
			says:    []string{"storage is degraded", "An apply starts nothing until they are resumed"},
			prepare: func(e *examined) { e.braked() },
		},
		{
			check: cluster.CheckSuspended, condition: "somebody has, and the run does not wait", want: failed,
			says: []string{"storage is degraded", "An apply stops before it starts anything"},
			prepare: func(e *examined) {
				e.request = stopping(e.request)
				e.braked()
			},
		},
		{
			check: cluster.CheckGates, condition: "one is closed", want: failed, says: []string{"gates[0] (test) does not hold: degraded"},
			prepare: gate(func(string) (bool, string, error) { return false, "degraded", nil }),
		},
		{
			check: cluster.CheckGates, condition: "nobody can tell", want: untold,
			prepare: gate(func(string) (bool, string, error) { return false, "", errors.New("no such key") }),
		},
		{
			check: cluster.CheckGates, condition: "it may not look", want: untold, says: []string{"Correct the gate"},
			prepare: gate(func(string) (bool, string, error) { return false, "", cluster.ErrDenied }),
		},
		{
			check: cluster.CheckWindow, condition: "it is closed", want: failed, says: []string{"it opens at"},
			prepare: func(e *examined) {
				e.request.Window = interval{from: time.Now().Add(time.Hour), to: time.Now().Add(2 * time.Hour)}
			},
		},
		{
			check: cluster.CheckSnapshot, condition: "others can read it", want: advised, says: []string{"is open to others", "every secret", "chmod 700"},
			prepare: func(e *examined) {
				store := ports.NewVault()
				store.Expose("the directory /backup is open to others than its owner (mode 0755)")
				e.request.Snapshots = store
			},
		},
		{
			check: cluster.CheckSnapshot, condition: "it cannot be written", want: failed, says: []string{"read-only"},
			prepare: func(e *examined) {
				store := ports.NewVault()
				store.Refuse(errors.New("read-only file system"))
				e.request.Snapshots = store
			},
		},
	}
}

// operatorExaminations are about the object of an operator that may upgrade the
// same cluster.
func operatorExaminations() []examination {
	saying := func(key, value string) func(*examined) {
		return func(e *examined) { e.beside.annotate(key, value) }
	}
	refusing := func(err error) func(*examined) {
		return func(e *examined) {
			e.beside.api.Inject(func(context.Context, played.Operation, func() error) error { return err })
		}
	}
	delegated := func(prepare func(*examined)) func(*examined) {
		return func(e *examined) {
			e.request.Delegated = true

			prepare(e)
		}
	}

	return []examination{
		{check: cluster.CheckOperator, condition: "it is asked to upgrade", prepare: saying(keyTarget, "v1.13.4"), want: failed, says: []string{"tenant-a/prod", "Talos to 1.13.4"}},
		{check: cluster.CheckOperator, condition: "it is upgrading", prepare: saying(keyStatus, "in-progress"), want: failed, says: []string{"in-progress", "remove that status"}},
		{check: cluster.CheckOperator, condition: "a run that died said so", want: passed, prepare: func(e *examined) {
			e.beside.annotate(keyStatus, "in-progress")
			e.beside.annotate(keyHold, cluster.RunPrefix+"dead")
		}},
		{check: cluster.CheckOperator, condition: "it is held by a person", prepare: saying(keyHold, "maintenance"), want: passed},
		{check: cluster.CheckOperator, condition: "no such object", prepare: refusing(cluster.ErrNotFound), want: untold, says: []string{"Create the object"}},
		{check: cluster.CheckOperator, condition: "no permission", prepare: refusing(cluster.ErrDenied), want: untold, says: []string{"Allow the credentials"}},
		{check: cluster.CheckOperator, condition: "credentials are too old", prepare: refusing(cluster.ErrCredentials), want: untold, says: []string{"Renew or correct the credentials"}},
		{check: cluster.CheckOperator, condition: "nothing answers", prepare: refusing(cluster.ErrUnreachable), want: untold, says: []string{"management"}},
		{check: cluster.CheckOperator, condition: "the object is on its way out", want: failed, says: []string{"is being deleted"}, prepare: func(e *examined) {
			if err := e.beside.api.Delete(e.beside.of, "example.org/keep"); err != nil {
				e.T.Fatal(err)
			}
		}},
		{check: cluster.CheckOperator, condition: "it would be asked, and is held by a person", prepare: delegated(saying(keyHold, "maintenance")), want: failed, says: []string{"maintenance", "kubectl"}},
		{check: cluster.CheckOperator, condition: "it would be asked, and there is no such object", prepare: delegated(refusing(cluster.ErrNotFound)), want: untold, says: []string{"can only be asked through it"}},
	}
}

// TestPreflight_BoundedInTime: a port that does not answer holds up nothing but
// its own check.
func TestPreflight_BoundedInTime(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		e := newExamined(r)
		e.client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "Vitals" && call.Method != "Workloads" {
				return next(ctx)
			}

			<-ctx.Done()

			return context.Cause(ctx)
		})

		begun := time.Now()
		found := e.examine()

		if took := time.Since(begun); took > 2*time.Minute {
			t.Errorf("it took %s", took)
		}

		for _, check := range []string{cluster.CheckDiskSpace, cluster.CheckDrain} {
			if got, _ := verdict(found, check); got != untold {
				t.Errorf("%s is %s, want %s", check, got, untold)
			}
		}
	})
}

// TestPreflight_UnconfirmedSystemOfAPersonIsWaitedFor, be it new or rolled back before it was
// ready; the finding tells the two apart, and once the machine is ready there is none.
func TestPreflight_UnconfirmedSystemOfAPersonIsWaitedFor(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		rollBack bool
		says     []string
	}{
		"new":         {false, []string{"Talos 1.13.3, which was installed", "(talos-v1.13.2.efi) names the system before it", "rollback starts the system before it"}},
		"rolled back": {true, []string{"Talos 1.13.2, and META key 0x06 (talos-v1.13.2.efi) names that version itself: it was rolled back", "the system that was left starts again if this one fails"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Talos: fromLifecycle, UKI: true, Seed: 3}}, func(r *rig) {
				r.World().SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, For: 20 * time.Minute}})

				if err := r.World().UpgradeByHand("worker-0", "ghcr.io/siderolabs/installer:v1.13.3"); err != nil {
					t.Fatal(err)
				}

				r.awaitBoot("worker-0", "1.13.3")

				if test.rollBack {
					if err := r.World().Rollback(context.Background(), "worker-0"); err != nil {
						t.Fatal(err)
					}

					r.awaitBoot("worker-0", "1.13.2")
				}

				// No run has sent the node back, so the history as a whole would not be sound.
				err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle))
				for _, part := range append(test.says, "worker-0", "Wait until it is ready", "external-changes") {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("it does not say %q: %v", part, err)
					}
				}

				if state := r.State("worker-1"); state.Installs != 0 {
					t.Errorf("worker-1 was installed: %+v", state)
				}

				time.Sleep(time.Hour)

				if err := r.Worker("run-2").Apply(context.Background(), to(toLifecycle)); err != nil {
					t.Error(err)
				}

				if state := r.State("worker-0"); state.Talos != toLifecycle {
					t.Errorf("worker-0 runs Talos %s", state.Talos)
				}
			})
		})
	}
}

// awaitBoot waits until the machine answers with the version.
func (r *rig) awaitBoot(node, talos string) {
	r.T.Helper()

	for range 600 {
		if state := r.State(node); state.Reachable && state.Talos == talos {
			return
		}

		time.Sleep(time.Second)
	}

	r.T.Fatalf("%s does not come up with Talos %s: %+v", node, talos, r.State(node))
}
