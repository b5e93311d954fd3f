// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// order is everything that leaves the model for somebody who acts on it.
type order struct {
	Request engine.Request
	// Gates are there in place of those of the request, which are compiled.
	Gates       []gate.Spec
	Publication publication.Publication
	Context     string
}

func orderOf(t *testing.T, model *clusterModel) order {
	t.Helper()

	request, diagnostics := model.request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	made := order{Request: request, Publication: model.publication(), Context: model.Context.ValueString()}
	made.Request.Gates = nil

	for index, element := range model.Gates.Elements() {
		object, is := element.(types.Object)
		if !is {
			t.Fatalf("gate %d is %T", index, element)
		}

		var (
			one  gateModel
			more diag.Diagnostics
		)

		wellDone(t, object.As(t.Context(), &one, basetypes.ObjectAsOptions{}))
		made.Gates = append(made.Gates, one.spec(t.Context(), path.Root(attrname.Gates).AtListIndex(index), &more))
		wellDone(t, more)
	}

	return made
}

// leaves are the attributes that a user can set and that have none below them,
// with dots between the names of nested ones.
func leaves(within string, attributes map[string]schema.Attribute) []string {
	var names []string

	for name, attribute := range attributes {
		if attribute.IsComputed() && !attribute.IsOptional() {
			continue
		}

		switch nested := attribute.(type) {
		case schema.SingleNestedAttribute:
			names = append(names, leaves(within+name+".", nested.Attributes)...)
		case schema.ListNestedAttribute:
			names = append(names, leaves(within+name+".", nested.NestedObject.Attributes)...)
		case schema.MapNestedAttribute:
			names = append(names, leaves(within+name+".", nested.NestedObject.Attributes)...)
		default:
			names = append(names, within+name)
		}
	}

	slices.Sort(names)

	return names
}

// selecting sets the one element of selector_overrides, inPools the one pool.
func selecting(t *testing.T, one selectorOverrideModel) func(*clusterModel) {
	t.Helper()

	value, diagnostics := types.ListValueFrom(t.Context(), types.ObjectType{AttrTypes: typesOf[selectorOverrideModel]()}, []selectorOverrideModel{one})
	wellDone(t, diagnostics)

	return func(m *clusterModel) { m.SelectorOverrides = value }
}

func inPools(t *testing.T, one poolModel) func(*clusterModel) {
	t.Helper()

	value, diagnostics := types.MapValueFrom(t.Context(), types.ObjectType{AttrTypes: typesOf[poolModel]()}, map[string]poolModel{"storage": one})
	wellDone(t, diagnostics)

	return func(m *clusterModel) { m.Pools = value }
}

// TestModel_EveryAttributeCountsAsAChange: an attribute that changes alone is a change of the
// resource, and whoever acts on it is told. An attribute that is new fails here
// until it has a row, and its row fails until the attribute does something.
func TestModel_EveryAttributeCountsAsAChange(t *testing.T) {
	text := types.StringValue
	drain := func(change func(*drainModel)) func(*clusterModel) {
		return func(m *clusterModel) {
			made := drainModel{Enabled: types.BoolValue(true), Timeout: text("5m"), OnTimeout: text("abort"), Volumes: text("true")}
			change(&made)

			value, diagnostics := types.ObjectValueFrom(t.Context(), typesOf[drainModel](), made)
			wellDone(t, diagnostics)

			m.Drain = value
		}
	}
	image := func(name string) func(*clusterModel) {
		return inKubernetes(t, func(k *kubernetesModel) {
			k.Images = overriding(t, map[string]string{name: "registry.example.com/own"})
		})
	}
	gated := func(change func(*gateModel)) func(*clusterModel) {
		made := inConfigMap("object.data.go == 'yes'")
		change(&made)

		return gated(t, made)
	}
	window := func(change func(*windowModel)) func(*clusterModel) {
		made := nightly()
		change(&made)

		return windowed(made)
	}
	// before is what the rows of an attribute change where it has to be there already.
	before := map[string]func(*clusterModel){
		attrname.Gates:             gated(func(*gateModel) {}),
		attrname.SelectorOverrides: selecting(t, selectorOverrideModel{Selector: text("upgrade=hold"), Hold: types.BoolValue(true)}),
		attrname.Pools:             inPools(t, poolModel{Selector: text("pool=storage"), MaxUnavailable: text("1")}),
		attrname.MaintenanceWindow: window(func(*windowModel) {}),
		attrname.PublishTo:         publishing(publishedTo("example.com/v1", "Site", "a", "b")),
	}

	rows := map[string]func(*clusterModel){
		"talos_version":          func(m *clusterModel) { m.TalosVersion = text("1.13.3") },
		"kubernetes_version":     func(m *clusterModel) { m.KubernetesVersion = text("1.35.2") },
		"context":                func(m *clusterModel) { m.Context = text("other") },
		"order":                  func(m *clusterModel) { m.Order = text(string(cluster.ControlPlanesFirst)) },
		"reboot_mode":            func(m *clusterModel) { m.RebootMode = text(string(cluster.RebootPowercycle)) },
		"node_timeout":           func(m *clusterModel) { m.NodeTimeout = text("40m") },
		"drain.enabled":          drain(func(d *drainModel) { d.Enabled = types.BoolValue(false) }),
		"drain.timeout":          drain(func(d *drainModel) { d.Timeout = text("7m") }),
		"drain.on_timeout":       drain(func(d *drainModel) { d.OnTimeout = text(string(cluster.DrainDelete)) }),
		"drain.wait_for_volumes": drain(func(d *drainModel) { d.Volumes = text(string(cluster.IgnoreVolumes)) }),
		"installer_image":        func(m *clusterModel) { m.InstallerImage = text("registry.example.com/installer") },

		"allow_intermediate_versions": func(m *clusterModel) { m.AllowIntermediate = types.BoolValue(true) },
		"intermediate_versions":       func(m *clusterModel) { m.IntermediateVersions = texts("1.12.8") },
		"allow_unknown_versions":      func(m *clusterModel) { m.AllowUnknown = types.BoolValue(true) },
		"max_unavailable":             unavailable("2"),
		"parallel_pulls":              func(m *clusterModel) { m.ParallelPulls = times(7) },
		"canary":                      func(m *clusterModel) { m.Canary = texts("worker-0") },
		"settle":                      func(m *clusterModel) { m.Settle = text("5m") },

		"node_overrides.installer_image": override(t, nodeOverrideModel{InstallerImage: text("registry.example.com/installer")}),
		"node_overrides.hold":            override(t, nodeOverrideModel{Hold: types.BoolValue(true)}),
		"node_overrides.reboot_mode":     override(t, nodeOverrideModel{RebootMode: text("powercycle")}),
		"node_overrides.retry_boot_id":   override(t, nodeOverrideModel{RetryBootID: text("2f1c")}),

		"canary_selector":                    func(m *clusterModel) { m.CanarySelector = text("upgrade=first") },
		"selector_overrides.selector":        selecting(t, selectorOverrideModel{Selector: text("upgrade=never"), Hold: types.BoolValue(true)}),
		"selector_overrides.hold":            selecting(t, selectorOverrideModel{Selector: text("upgrade=hold"), Hold: types.BoolValue(false)}),
		"selector_overrides.reboot_mode":     selecting(t, selectorOverrideModel{Selector: text("upgrade=hold"), Hold: types.BoolValue(true), RebootMode: text("powercycle")}),
		"selector_overrides.installer_image": selecting(t, selectorOverrideModel{Selector: text("upgrade=hold"), Hold: types.BoolValue(true), InstallerImage: text("registry.example.com/installer")}),
		"pools.selector":                     inPools(t, poolModel{Selector: text("pool=other"), MaxUnavailable: text("1")}),
		"pools.max_unavailable":              inPools(t, poolModel{Selector: text("pool=storage"), MaxUnavailable: text("2")}),

		"kubernetes.max_unavailable_kubelets":    inKubernetes(t, func(k *kubernetesModel) { k.UnavailableKubelets = text("2") }),
		"kubernetes.manifests.sync":              inManifests(t, func(m *manifestsModel) { m.Sync = types.BoolValue(true) }),
		"kubernetes.manifests.prune":             inManifests(t, func(m *manifestsModel) { m.Prune = types.BoolValue(true) }),
		"kubernetes.manifests.timeout":           inManifests(t, func(m *manifestsModel) { m.Timeout = text("7m") }),
		"kubernetes.manifests.force":             inManifests(t, func(m *manifestsModel) { m.Force = types.BoolValue(true) }),
		"kubernetes.manifests.exclude.kind":      inManifests(t, leaving(t, "CronJob", "setup", "once")),
		"kubernetes.manifests.exclude.namespace": inManifests(t, leaving(t, "Job", "storage", "once")),
		"kubernetes.manifests.exclude.name":      inManifests(t, leaving(t, "Job", "setup", "twice")),

		"preflight.skip":          func(m *clusterModel) { m.Preflight = skippingChecks(text(cluster.CheckEtcdAlarms)) },
		"etcd_snapshot.directory": func(m *clusterModel) { m.EtcdSnapshot = savedIn(text("snapshots")) },
		"sync_install_image":      func(m *clusterModel) { m.SyncInstallImage = types.BoolValue(true) },
		"on_failure":              failing("rollback"),
		"on_suspend":              func(m *clusterModel) { m.OnSuspend = text("stop") },
		"retry.attempts":          repeating(times(3), types.StringNull()),
		"retry.backoff":           repeating(types.NumberNull(), text("90s")),

		"gates.preset":      gated(func(g *gateModel) { *g = longhorn() }),
		"gates.api_version": gated(func(g *gateModel) { g.APIVersion = text("example.com/v1") }),
		"gates.kind":        gated(func(g *gateModel) { g.Kind = text("Pod") }),
		"gates.namespace":   gated(func(g *gateModel) { g.Namespace = text("other") }),
		"gates.name":        gated(func(g *gateModel) { g.Name = text("other") }),
		"gates.selector":    gated(func(g *gateModel) { g.Name, g.Selector = types.StringNull(), text("app=other") }),
		"gates.expr":        gated(func(g *gateModel) { g.Expr = text("object.data.go == 'no'") }),
		"gates.timeout":     gated(func(g *gateModel) { g.Timeout = text("7m") }),

		"maintenance_window.cron":      window(func(w *windowModel) { w.Cron = text("0 21 * * *") }),
		"maintenance_window.duration":  window(func(w *windowModel) { w.Duration = text("5h") }),
		"maintenance_window.time_zone": window(func(w *windowModel) { w.TimeZone = text("Asia/Tokyo") }),

		"publish_to.api_version": publishing(publishedTo("example.com/v2", "Site", "a", "b")),
		"publish_to.kind":        publishing(publishedTo("example.com/v1", "Place", "a", "b")),
		"publish_to.namespace":   publishing(publishedTo("example.com/v1", "Site", "c", "b")),
		"publish_to.name":        publishing(publishedTo("example.com/v1", "Site", "a", "c")),
		"mode":                   func(m *clusterModel) { m.Mode = text(modeDelegate) },

		"timeouts.create": limited("create", "1h"),
		"timeouts.update": limited("update", "1h"),
		"timeouts.read":   limited("read", "2m"),
		"timeouts.delete": limited("delete", "2m"),
		"report_path":     func(m *clusterModel) { m.ReportPath = text("report.html") },
	}

	for _, one := range imageAttributes() {
		rows["kubernetes.images."+one.name] = image(one.name)
	}

	// What only the run of Terraform needs is not told to whoever upgrades.
	untold := map[string]bool{"timeouts.create": true, "timeouts.update": true, "timeouts.read": true, "timeouts.delete": true, "report_path": true}

	known := leaves("", testSchema(t).Attributes)
	for name := range rows {
		if !slices.Contains(known, name) {
			t.Errorf("there is no attribute %s", name)
		}
	}

	for _, name := range known {
		t.Run(name, func(t *testing.T) {
			change, there := rows[name]
			if !there {
				t.Fatalf("no row says how %s is changed", name)
			}

			was, is := desired("1.13.4", ""), desired("1.13.4", "")
			root, _, _ := strings.Cut(name, ".")

			if set := before[root]; set != nil {
				set(was)
			}

			change(is)

			if was.sameAs(*is) {
				t.Error("the change is overlooked")
			}

			if !was.sameAs(*was) || !reflect.DeepEqual(orderOf(t, was), orderOf(t, was)) {
				t.Error("a change is seen where there is none")
			}

			if told := !reflect.DeepEqual(orderOf(t, was), orderOf(t, is)); told == untold[name] {
				t.Errorf("whoever upgrades is told of it: %t", told)
			}
		})
	}
}

// TestModel_EveryOptionSaysWhatItDecides: the model says of each attribute that a user sets what it decides about, and of
// no other one.
func TestModel_EveryOptionSaysWhatItDecides(t *testing.T) {
	var want, got []string

	for name, attribute := range testSchema(t).Attributes {
		if attribute.IsOptional() || attribute.IsRequired() {
			want = append(want, name)
		}
	}

	for _, one := range (clusterModel{}).choices() {
		got = append(got, one.name)

		if !slices.Contains([]decision{aboutRun, aboutUpgrade, aboutNodes}, one.decides) {
			t.Errorf("%s decides about %q", one.name, one.decides)
		}
	}

	slices.Sort(want)
	slices.Sort(got)

	if !slices.Equal(want, got) {
		t.Errorf("the choices are %q, and the user sets %q", got, want)
	}
}

func TestModel_BecomesAPolicy(t *testing.T) {
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
			m.Drain, m.NodeTimeout = types.ObjectNull(typesOf[drainModel]()), types.StringNull()
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
			k.Images = overriding(t, map[string]string{attrname.Kubelet: "registry.example.com/kubelet", attrname.APIServer: "registry.example.com/apiserver", attrname.Proxy: ""})
		}), func(p *cluster.Policy) {
			p.Kubernetes.Images = map[cluster.Component]string{cluster.Kubelet: "registry.example.com/kubelet", cluster.APIServer: "registry.example.com/apiserver"}
		}},
		"every image has its component": {inKubernetes(t, func(k *kubernetesModel) {
			k.Images = overriding(t, map[string]string{attrname.Kubelet: "k", attrname.APIServer: "a", attrname.ControllerManager: "c", attrname.Scheduler: "s", attrname.Proxy: "p"})
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
			m.Preflight = types.ObjectValueMust(skipTypes(), map[string]attr.Value{attrname.Skip: types.SetNull(types.StringType)})
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
			kind := types.ObjectType{AttrTypes: typesOf[nodeOverrideModel]()}
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
			want.RebootModes = map[string]cluster.RebootMode{}
			test.want(&want)

			if !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v, want\n%+v", got, want)
			}
		})
	}
}

// TestModel_InvalidPolicyNamesThePlace: state may hold what no validator has seen.
func TestModel_InvalidPolicyNamesThePlace(t *testing.T) {
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

// TestModel_EveryUnknownValuePostponesThePlan: what is not known decides about the
// roll all the same.
func TestModel_EveryUnknownValuePostponesThePlan(t *testing.T) {
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
		"retry":                           func(m *clusterModel) { m.Retry = types.ObjectUnknown(typesOf[retryModel]()) },
		"retry.attempts":                  repeating(types.NumberUnknown(), types.StringNull()),
		"retry.backoff":                   repeating(times(2), types.StringUnknown()),
		"node_overrides[n].reboot_mode":   override(t, nodeOverrideModel{RebootMode: types.StringUnknown()}),
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

// skippingChecks is preflight with checks that are skipped.
func skippingChecks(names ...attr.Value) types.Object {
	return types.ObjectValueMust(skipTypes(), map[string]attr.Value{attrname.Skip: types.SetValueMust(types.StringType, names)})
}

// savedIn is etcd_snapshot with a directory.
func savedIn(directory types.String) types.Object {
	return types.ObjectValueMust(directoryTypes(), map[string]attr.Value{attrname.Directory: directory})
}

// gated sets gates.
func gated(t *testing.T, gates ...gateModel) func(*clusterModel) {
	t.Helper()

	value, diagnostics := types.ListValueFrom(t.Context(), types.ObjectType{AttrTypes: typesOf[gateModel]()}, gates)
	wellDone(t, diagnostics)

	return func(m *clusterModel) { m.Gates = value }
}

// windowed sets maintenance_window.
func windowed(window windowModel) func(*clusterModel) {
	return func(m *clusterModel) {
		m.MaintenanceWindow = types.ObjectValueMust(typesOf[windowModel](), map[string]attr.Value{
			attrname.Cron: window.Cron, attrname.Duration: window.Duration, attrname.TimeZone: window.TimeZone,
		})
	}
}

func longhorn() gateModel {
	return gateModel{Preset: types.StringValue("longhorn"), Timeout: types.StringValue("5m")}
}

// inConfigMap is a gate over a ConfigMap.
func inConfigMap(expr string) gateModel {
	return gateModel{
		APIVersion: types.StringValue("v1"), Kind: types.StringValue("ConfigMap"), Namespace: types.StringValue("default"), Name: types.StringValue("go"),
		Expr: types.StringValue(expr),
	}
}

func nightly() windowModel {
	return windowModel{Cron: types.StringValue("0 22 * * 1-5"), Duration: types.StringValue("6h"), TimeZone: types.StringValue("Europe/Oslo")}
}

func TestModel_BecomesARequest(t *testing.T) {
	directory := t.TempDir()

	model := desired("1.13.4", "1.34.2")
	model.EtcdSnapshot = savedIn(types.StringValue(directory))
	gated(t, longhorn(), inConfigMap("object.data.go == 'yes'"))(model)
	windowed(nightly())(model)

	fake := threeNodes("1.12.6", "1.34.2")
	fake.objects = []map[string]any{{"kind": "ConfigMap", "metadata": map[string]any{"name": "go", "namespace": "default"}, "data": map[string]any{"go": "yes"}}}

	got, diagnostics := model.request(t.Context(), "factory.example.com", fake)
	wellDone(t, diagnostics)

	if got.Target.Talos.String() != "1.13.4" || got.Target.Kubernetes.String() != "1.34.2" || got.Target.ImageFactory != "factory.example.com" {
		t.Errorf("target %+v", got.Target)
	}

	if len(got.Gates) != 2 {
		t.Fatalf("%d gates, want 2", len(got.Gates))
	}

	if got.Gates[0].Timeout() != 5*time.Minute || got.Gates[1].Timeout() != gate.DefaultTimeout {
		t.Errorf("timeouts %s and %s", got.Gates[0].Timeout(), got.Gates[1].Timeout())
	}

	if !strings.Contains(got.Gates[0].String(), "gates[0]") || !strings.Contains(got.Gates[1].String(), "gates[1]") {
		t.Errorf("called %s and %s", got.Gates[0], got.Gates[1])
	}

	if holds, seen, err := got.Gates[1].Holds(t.Context(), ""); !holds || err != nil {
		t.Errorf("the gate holds: %t, %s, %v", holds, seen, err)
	}

	// Monday, 2026-03-16: 22:30 in Oslo is 21:30 UTC.
	night := time.Date(2026, time.March, 16, 21, 30, 0, 0, time.UTC)
	if open, _ := got.Window.Open(night); !open {
		t.Error("the window is closed at night")
	}

	if open, _ := got.Window.Open(night.Add(-time.Hour)); open {
		t.Error("the window is open too early")
	}

	if exposed, err := got.Snapshots.Check(t.Context()); err != nil {
		t.Errorf("the store: %q, %v", exposed, err)
	}

	if left, _ := filepath.Glob(directory + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestModel_EmptyConfigurationHoldsNothingUp(t *testing.T) {
	got, diagnostics := desired("1.13.4", "").request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	if got.Gates != nil || got.Window != nil || got.Snapshots != nil || got.Policy.SkipChecks != nil || got.Policy.SyncInstallImage {
		t.Errorf("got %+v", got)
	}
}

// TestModel_GatesOfAClusterOutOfReachDoNotHold: nobody can tell, which is not the same
// as nothing being wrong.
func TestModel_GatesOfAClusterOutOfReachDoNotHold(t *testing.T) {
	model := desired("1.13.4", "")
	gated(t, longhorn())(model)

	got, diagnostics := model.request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	holds, _, err := got.Gates[0].Holds(t.Context(), "worker-0")
	if holds || !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("holds: %t, %v", holds, err)
	}
}

// TestModel_InvalidRequestNamesThePlace: state may hold what no validator has seen.
func TestModel_InvalidRequestNamesThePlace(t *testing.T) {
	model := desired("1.13.4", "")

	slow := longhorn()
	slow.Timeout = types.StringValue("soon")

	gated(t, slow, inConfigMap("object.data ="))(model)
	windowed(windowModel{Cron: types.StringValue("0 22 * *"), Duration: types.StringValue("6h")})(model)

	_, diagnostics := model.request(t.Context(), "", nil)
	check(t, diagnostics,
		outcome{diag.SeverityError, `gates[0].timeout is "soon"`}, outcome{diag.SeverityError, "gates[1].expr"}, outcome{diag.SeverityError, "maintenance_window.cron"})
}

func savedSnapshot(path string) *cluster.EtcdSnapshot {
	return &cluster.EtcdSnapshot{
		Path: path, Size: 4096 + 32, SHA256: "0f343b0931126a20f133d67c2b018a3b", Run: "run",
		Taken:  time.Date(2026, time.March, 14, 2, 59, 26, 0, time.FixedZone("CET", 3600)),
		Target: cluster.Target{Talos: version.MustParse("1.13.4")},
	}
}

func TestSnapshot_IsWhatTheJournalRemembers(t *testing.T) {
	first, second := &cluster.Journal{Snapshot: savedSnapshot("/a.db")}, &cluster.Journal{Snapshot: savedSnapshot("/b.db")}
	none, unknown := types.ObjectNull(snapshotTypes()), types.ObjectUnknown(snapshotTypes())
	earlier := snapshotValue(first, none)

	want := map[string]string{
		"path": `"/a.db"`, "size": "4128", "sha256": `"0f343b0931126a20f133d67c2b018a3b"`, "taken": `"2026-03-14T01:59:26Z"`,
		"talos_version": `"1.13.4"`, "kubernetes_version": "<null>",
	}
	for name, value := range earlier.Attributes() {
		if value.String() != want[name] {
			t.Errorf("%s is %s, want %s", name, value, want[name])
		}
	}

	if len(earlier.Attributes()) != len(want) {
		t.Errorf("got %s", earlier)
	}

	for name, test := range map[string]struct {
		journal       *cluster.Journal
		earlier, want types.Object
	}{
		"a new one replaces the earlier":         {second, earlier, snapshotValue(second, none)},
		"an unreadable journal keeps it":         {nil, earlier, earlier},
		"a journal without one keeps it":         {&cluster.Journal{}, earlier, earlier},
		"there never was one":                    {&cluster.Journal{}, none, none},
		"what was planned as unknown gets known": {&cluster.Journal{}, unknown, none},
		"so does it without a journal":           {nil, unknown, none},
	} {
		if got := snapshotValue(test.journal, test.earlier); !got.Equal(test.want) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestSnapshot_ReachesTheState: after a create, after an update whether it failed
// or not, and with a refresh.
func TestSnapshot_ReachesTheState(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	prior := stored(t, fake, "1.13.4", "")

	if !prior.Snapshot.IsNull() {
		t.Fatalf("there is a snapshot: %s", prior.Snapshot)
	}

	fake.journal.Snapshot = savedSnapshot("/a.db")
	fake.journal.Snapshot.Closed = true
	want := snapshotValue(&fake.journal, prior.Snapshot)

	created, diagnostics := create(t, fake.clusters(t), desired("1.13.4", ""))
	check(t, diagnostics)

	updated, diagnostics := apply(t, fake.clusters(t), prior, desired("1.13.4", ""))
	check(t, diagnostics)

	refreshed, diagnostics := read(t.Context(), t, fake.clusters(t), prior)
	check(t, diagnostics)

	for name, got := range map[string]*clusterModel{"create": created, "update": updated, "refresh": refreshed} {
		if !got.Snapshot.Equal(want) {
			t.Errorf("after the %s it is %s", name, got.Snapshot)
		}
	}

	fake.nodes[1].talos, fake.roles = "1.13.0", []string{"os:reader"}

	failed, diagnostics := apply(t, fake.clusters(t), prior, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "os:reader"})

	if !failed.Snapshot.Equal(want) {
		t.Errorf("after a failed update it is %s", failed.Snapshot)
	}

	fake.kubernetesDown = cluster.ErrUnreachable

	away, _ := read(t.Context(), t, fake.clusters(t), refreshed)
	if !away.Snapshot.Equal(want) {
		t.Errorf("without a journal it is %s", away.Snapshot)
	}

	fake.kubernetesDown, fake.journal.Snapshot = nil, nil

	gone, _ := read(t.Context(), t, fake.clusters(t), refreshed)
	if !gone.Snapshot.Equal(want) {
		t.Errorf("with a journal that lost it, it is %s", gone.Snapshot)
	}
}

// TestSnapshot_IsPlannedWithTheRest: an upgrade may take one, and a plan that
// changes nothing must leave the one in state alone.
func TestSnapshot_IsPlannedWithTheRest(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.journal.Snapshot = savedSnapshot("/a.db")
	fake.journal.Snapshot.Closed = true
	state := stored(t, fake, "1.13.4", "")

	plan := desired("1.13.4", "")
	plan.ID = state.ID

	got, diagnostics := planned(t, fake.clusters(t), state, plan)
	check(t, diagnostics)

	if !got.Snapshot.Equal(state.Snapshot) {
		t.Errorf("a plan of nothing plans %s", got.Snapshot)
	}

	fake.nodes[1].talos = "1.13.0"

	got, _ = planned(t, fake.clusters(t), state, state)
	if !got.Snapshot.IsUnknown() {
		t.Errorf("a roll plans %s", got.Snapshot)
	}
}
