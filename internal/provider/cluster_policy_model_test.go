// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestModelBecomesPolicy(t *testing.T) {
	parse := func(text string) cluster.Share {
		share, err := cluster.ParseShare(text)
		if err != nil {
			t.Fatal(err)
		}

		return share
	}

	for name, test := range map[string]struct {
		change func(*clusterModel)
		want   func(*cluster.Policy)
	}{
		"a configuration that says nothing means the defaults": {func(*clusterModel) {}, func(*cluster.Policy) {}},
		"values that are null mean the defaults": {func(m *clusterModel) {
			m.AllowIntermediate, m.AllowUnknown, m.MaxUnavailable, m.Settle = types.BoolNull(), types.BoolNull(), types.StringNull(), types.StringNull()
			m.Drain, m.NodeTimeout = types.ObjectNull(drainTypes()), types.StringNull()
		}, func(*cluster.Policy) {}},
		"path": {func(m *clusterModel) {
			m.AllowIntermediate, m.IntermediateVersions, m.AllowUnknown = types.BoolValue(true), texts("v1.12.8", "1.33.4"), types.BoolValue(true)
		}, func(p *cluster.Policy) {
			p.AllowIntermediate, p.AllowUnknown = true, true
			p.Intermediate = []version.Version{version.MustParse("1.12.8"), version.MustParse("1.33.4")}
		}},
		"number of workers": {unavailable("3"), func(p *cluster.Policy) { p.MaxUnavailable = parse("3") }},
		"share of workers":  {unavailable("25%"), func(p *cluster.Policy) { p.MaxUnavailable = parse("25%") }},
		"canary and settle": {func(m *clusterModel) {
			m.Canary, m.Settle = texts("worker-1", "worker-0"), types.StringValue("5m")
		}, func(p *cluster.Policy) { p.Canary, p.Settle = []string{"worker-1", "worker-0"}, 5*time.Minute }},
		"overrides": {func(m *clusterModel) {
			m.NodeOverrides = overrides(t, map[string]nodeOverrideModel{
				"worker-0": {InstallerImage: types.StringValue(genericImage), RetryBootID: types.StringValue("boot-1")},
				"worker-1": {Hold: types.BoolValue(true)},
				"worker-2": {},
			})
		}, func(p *cluster.Policy) {
			p.Images["worker-0"], p.Retry["worker-0"] = genericImage, "boot-1"
			p.Hold["worker-0"], p.Hold["worker-1"], p.Hold["worker-2"] = false, true, false
		}},
		"images": {inKubernetes(t, func(k *kubernetesModel) {
			k.Images = overriding(t, map[string]string{attrKubelet: "registry.example.com/kubelet", attrAPIServer: "registry.example.com/apiserver", attrProxy: ""})
		}), func(p *cluster.Policy) {
			p.Kubernetes.Images = map[cluster.Component]string{cluster.Kubelet: "registry.example.com/kubelet", cluster.APIServer: "registry.example.com/apiserver"}
		}},
		"every image has its component": {inKubernetes(t, func(k *kubernetesModel) {
			k.Images = overriding(t, map[string]string{attrKubelet: "k", attrAPIServer: "a", attrControllerManager: "c", attrScheduler: "s", attrProxy: "p"})
		}), func(p *cluster.Policy) {
			p.Kubernetes.Images = map[cluster.Component]string{
				cluster.Kubelet: "k", cluster.APIServer: "a", cluster.ControllerManager: "c", cluster.Scheduler: "s", cluster.Proxy: "p",
			}
		}},
		"kubelets at a time": {inKubernetes(t, func(k *kubernetesModel) { k.UnavailableKubelets = types.StringValue("50%") }), func(p *cluster.Policy) {
			p.Kubernetes.MaxUnavailableKubelets = parse("50%")
		}},
		"manifests": {inManifests(t, func(m *manifestsModel) {
			m.Prune, m.Force, m.Timeout = types.BoolValue(true), types.BoolValue(true), types.StringValue("90s")
		}), func(p *cluster.Policy) {
			p.Kubernetes.Manifests = cluster.ManifestPolicy{Sync: true, Prune: true, Force: true, Timeout: 90 * time.Second}
		}},
		"manifests that nobody waits for": {inManifests(t, func(m *manifestsModel) { m.Timeout = types.StringValue("0s") }), func(p *cluster.Policy) {
			p.Kubernetes.Manifests.Timeout = 0
		}},
		"no manifests": {inManifests(t, func(m *manifestsModel) { m.Sync = types.BoolValue(false) }), func(p *cluster.Policy) {
			p.Kubernetes.Manifests.Sync = false
		}},
		"manifests of a Kubernetes that is not managed": {func(m *clusterModel) {
			m.KubernetesVersion, m.Kubernetes = types.StringNull(), types.ObjectNull(kubernetesTypes())
		}, func(p *cluster.Policy) {
			p.Kubernetes.Manifests.Sync = false
		}},
		"manifests of a Kubernetes that is not managed, asked for": {func(m *clusterModel) {
			inManifests(t, func(m *manifestsModel) { m.Sync = types.BoolValue(true) })(m)
			m.KubernetesVersion = types.StringNull()
		}, func(*cluster.Policy) {}},
		"checks that are skipped": {func(m *clusterModel) {
			m.Preflight = skippingChecks(types.StringValue(cluster.CheckEtcdAlarms), types.StringValue(cluster.CheckDrain))
		}, func(p *cluster.Policy) {
			p.SkipChecks = map[string]bool{cluster.CheckEtcdAlarms: true, cluster.CheckDrain: true}
		}},
		"no check is skipped": {func(m *clusterModel) { m.Preflight = skippingChecks() }, func(*cluster.Policy) {}},
		"checks that are null": {func(m *clusterModel) {
			m.Preflight = types.ObjectValueMust(skipTypes(), map[string]attr.Value{attrSkip: types.SetNull(types.StringType)})
		}, func(*cluster.Policy) {}},
		"install image": {func(m *clusterModel) { m.SyncInstallImage = types.BoolValue(true) }, func(p *cluster.Policy) { p.SyncInstallImage = true }},
		"rollback":      {failing("rollback"), func(p *cluster.Policy) { p.OnFailure = cluster.RollBackOnFailure }},
		"stop":          {failing("stop"), func(*cluster.Policy) {}},
		"suspended": {func(m *clusterModel) { m.OnSuspend = types.StringValue("stop") }, func(p *cluster.Policy) {
			p.OnSuspend = cluster.StopOnSuspend
		}},
		"retry": {repeating(times(5), types.StringValue("90s")), func(p *cluster.Policy) {
			p.Repeat = cluster.Repeat{Attempts: 5, Backoff: 90 * time.Second}
		}},
		"no repetition, and no pause": {repeating(times(1), types.StringValue("0s")), func(p *cluster.Policy) {
			p.Repeat = cluster.Repeat{Attempts: 1}
		}},
		"retry that says nothing": {repeating(types.NumberNull(), types.StringNull()), func(*cluster.Policy) {}},
		"Kubernetes that is null": {func(m *clusterModel) { m.Kubernetes = types.ObjectNull(kubernetesTypes()) }, func(*cluster.Policy) {}},
		"manifests that are null": {inKubernetes(t, func(k *kubernetesModel) {
			k.Manifests, k.UnavailableKubelets = types.ObjectNull(manifestsTypes()), types.StringNull()
		}), func(*cluster.Policy) {}},
		"an override that is null": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: nodeOverrideTypes()}
			m.NodeOverrides = types.MapValueMust(kind, map[string]attr.Value{"worker-0": types.ObjectNull(kind.AttrTypes)})
		}, func(p *cluster.Policy) { p.Hold["worker-0"] = false }},
	} {
		t.Run(name, func(t *testing.T) {
			model := desired("1.13.4", "1.35.2")
			test.change(model)

			got, diagnostics := model.policy(t.Context())
			wellDone(t, diagnostics)

			want := cluster.DefaultPolicy()
			want.Retry, want.Hold, want.Images = map[string]string{}, map[string]bool{}, map[string]string{}
			test.want(&want)

			if !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v, want\n%+v", got, want)
			}
		})
	}
}

// TestPolicyOfRubbishNamesThePlace: state may hold what no validator has seen.
func TestPolicyOfRubbishNamesThePlace(t *testing.T) {
	model := desired("1.13.4", "")
	model.MaxUnavailable, model.Settle, model.IntermediateVersions = types.StringValue("none"), types.StringValue("soon"), texts("1.12.8", "latest")
	repeating(times(0), types.StringValue("soon"))(model)

	inManifests(t, func(m *manifestsModel) { m.Timeout = types.StringValue("soon") })(model)

	_, diagnostics := model.policy(t.Context())

	var at []string
	for _, diagnostic := range diagnostics {
		at = append(at, pathText(diagnostic))
	}

	if !slices.Equal(at, []string{"settle", "max_unavailable", "retry", "retry", "intermediate_versions[1]", "kubernetes"}) {
		t.Errorf("got %v", at)
	}
}

// TestEveryUnknownValuePostponesThePlan: what is not known decides about the
// roll all the same.
func TestEveryUnknownValuePostponesThePlan(t *testing.T) {
	unknownElement := types.ListValueMust(types.StringType, []attr.Value{types.StringUnknown()})

	for name, change := range map[string]func(*clusterModel){
		"allow_intermediate_versions": func(m *clusterModel) { m.AllowIntermediate = types.BoolUnknown() },
		"intermediate_versions":       func(m *clusterModel) { m.IntermediateVersions = types.ListUnknown(types.StringType) },
		"intermediate_versions[0]":    func(m *clusterModel) { m.IntermediateVersions = unknownElement },
		"allow_unknown_versions":      func(m *clusterModel) { m.AllowUnknown = types.BoolUnknown() },
		"parallel_pulls":              func(m *clusterModel) { m.ParallelPulls = types.NumberUnknown() },
		"max_unavailable":             func(m *clusterModel) { m.MaxUnavailable = types.StringUnknown() },
		"canary":                      func(m *clusterModel) { m.Canary = types.ListUnknown(types.StringType) },
		"canary[0]":                   func(m *clusterModel) { m.Canary = unknownElement },
		"canary_selector":             func(m *clusterModel) { m.CanarySelector = types.StringUnknown() },
		"selector_overrides": func(m *clusterModel) {
			m.SelectorOverrides = types.ListUnknown(m.SelectorOverrides.ElementType(t.Context()))
		},
		"selector_overrides[0].selector":  selecting(t, selectorOverrideModel{Selector: types.StringUnknown(), Hold: types.BoolValue(true)}),
		"selector_overrides[0].hold":      selecting(t, selectorOverrideModel{Selector: types.StringValue("a=b"), Hold: types.BoolUnknown()}),
		"pools":                           func(m *clusterModel) { m.Pools = types.MapUnknown(m.Pools.ElementType(t.Context())) },
		"pools[n].selector":               inPools(t, poolModel{Selector: types.StringUnknown(), MaxUnavailable: types.StringValue("1")}),
		"settle":                          func(m *clusterModel) { m.Settle = types.StringUnknown() },
		"kubernetes":                      func(m *clusterModel) { m.Kubernetes = types.ObjectUnknown(kubernetesTypes()) },
		"kubernetes.images":               inKubernetes(t, func(k *kubernetesModel) { k.Images = types.ObjectUnknown(overrideImageTypes()) }),
		"kubernetes.manifests.prune":      inManifests(t, func(m *manifestsModel) { m.Prune = types.BoolUnknown() }),
		"node_overrides":                  func(m *clusterModel) { m.NodeOverrides = types.MapUnknown(m.NodeOverrides.ElementType(t.Context())) },
		"node_overrides[n].hold":          override(t, nodeOverrideModel{Hold: types.BoolUnknown()}),
		"node_overrides[n].image":         override(t, nodeOverrideModel{InstallerImage: types.StringUnknown()}),
		"preflight":                       func(m *clusterModel) { m.Preflight = types.ObjectUnknown(skipTypes()) },
		"preflight.skip":                  func(m *clusterModel) { m.Preflight = skippingChecks(types.StringUnknown()) },
		"etcd_snapshot.directory":         func(m *clusterModel) { m.EtcdSnapshot = savedIn(types.StringUnknown()) },
		"gates":                           func(m *clusterModel) { m.Gates = types.ListUnknown(m.Gates.ElementType(t.Context())) },
		"gates[0].expr":                   gated(t, gateModel{APIVersion: types.StringValue("v1"), Kind: types.StringValue("Node"), Expr: types.StringUnknown()}),
		"maintenance_window.cron":         windowed(windowModel{Cron: types.StringUnknown(), Duration: types.StringValue("1h")}),
		"sync_install_image":              func(m *clusterModel) { m.SyncInstallImage = types.BoolUnknown() },
		"on_failure":                      func(m *clusterModel) { m.OnFailure = types.StringUnknown() },
		"on_suspend":                      func(m *clusterModel) { m.OnSuspend = types.StringUnknown() },
		"retry":                           func(m *clusterModel) { m.Retry = types.ObjectUnknown(retryTypes()) },
		"retry.attempts":                  repeating(types.NumberUnknown(), types.StringNull()),
		"retry.backoff":                   repeating(times(2), types.StringUnknown()),
		"node_overrides[n].retry_boot_id": override(t, nodeOverrideModel{RetryBootID: types.StringUnknown()}),
		"everything else stays decided":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.12.6", "1.34.2")
			plan := desired("1.13.4", "")

			if change == nil {
				_, _ = planned(t, fake.clusters(t), nil, plan)

				if fake.dialled == 0 {
					t.Error("the cluster was not looked at")
				}

				return
			}

			change(plan)

			_, diagnostics := planned(t, fake.clusters(t), nil, plan)
			check(t, diagnostics)

			if fake.dialled != 0 {
				t.Error("the cluster was looked at")
			}
		})
	}
}

func override(t *testing.T, model nodeOverrideModel) func(*clusterModel) {
	t.Helper()

	return func(m *clusterModel) { m.NodeOverrides = overrides(t, map[string]nodeOverrideModel{"worker-0": model}) }
}
