// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// order is everything that leaves the model for somebody who acts on it.
type order struct {
	Request engine.Request
	// Gates are there in place of those of the request, which are compiled.
	Gates       []gate.Spec
	Publication publication
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
		made.Gates = append(made.Gates, one.spec(t.Context(), path.Root(attrGates).AtListIndex(index), &more))
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

	value, diagnostics := types.ListValueFrom(t.Context(), types.ObjectType{AttrTypes: selectorOverrideTypes()}, []selectorOverrideModel{one})
	wellDone(t, diagnostics)

	return func(m *clusterModel) { m.SelectorOverrides = value }
}

func inPools(t *testing.T, one poolModel) func(*clusterModel) {
	t.Helper()

	value, diagnostics := types.MapValueFrom(t.Context(), types.ObjectType{AttrTypes: poolTypes()}, map[string]poolModel{"storage": one})
	wellDone(t, diagnostics)

	return func(m *clusterModel) { m.Pools = value }
}

// TestEveryAttributeCounts: an attribute that changes alone is a change of the
// resource, and whoever acts on it is told. An attribute that is new fails here
// until it has a row, and its row fails until the attribute does something.
func TestEveryAttributeCounts(t *testing.T) {
	text := types.StringValue
	drain := func(change func(*drainModel)) func(*clusterModel) {
		return func(m *clusterModel) {
			made := drainModel{Enabled: types.BoolValue(true), Timeout: text("5m"), OnTimeout: text("abort")}
			change(&made)

			value, diagnostics := types.ObjectValueFrom(t.Context(), drainTypes(), made)
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
		attrGates:             gated(func(*gateModel) {}),
		attrSelectorOverrides: selecting(t, selectorOverrideModel{Selector: text("upgrade=hold"), Hold: types.BoolValue(true)}),
		attrPools:             inPools(t, poolModel{Selector: text("pool=storage"), MaxUnavailable: text("1")}),
		attrMaintenanceWindow: window(func(*windowModel) {}),
		attrPublishTo:         publishing(publishedTo("example.com/v1", "Site", "a", "b")),
	}

	rows := map[string]func(*clusterModel){
		"talos_version":      func(m *clusterModel) { m.TalosVersion = text("1.13.3") },
		"kubernetes_version": func(m *clusterModel) { m.KubernetesVersion = text("1.35.2") },
		"context":            func(m *clusterModel) { m.Context = text("other") },
		"order":              func(m *clusterModel) { m.Order = text(string(cluster.ControlPlanesFirst)) },
		"reboot_mode":        func(m *clusterModel) { m.RebootMode = text(string(cluster.RebootPowercycle)) },
		"node_timeout":       func(m *clusterModel) { m.NodeTimeout = text("40m") },
		"drain.enabled":      drain(func(d *drainModel) { d.Enabled = types.BoolValue(false) }),
		"drain.timeout":      drain(func(d *drainModel) { d.Timeout = text("7m") }),
		"drain.on_timeout":   drain(func(d *drainModel) { d.OnTimeout = text(string(cluster.DrainDelete)) }),
		"installer_image":    func(m *clusterModel) { m.InstallerImage = text("registry.example.com/installer") },

		"allow_intermediate_versions": func(m *clusterModel) { m.AllowIntermediate = types.BoolValue(true) },
		"intermediate_versions":       func(m *clusterModel) { m.IntermediateVersions = texts("1.12.8") },
		"allow_unknown_versions":      func(m *clusterModel) { m.AllowUnknown = types.BoolValue(true) },
		"max_unavailable":             unavailable("2"),
		"parallel_pulls":              func(m *clusterModel) { m.ParallelPulls = times(7) },
		"canary":                      func(m *clusterModel) { m.Canary = texts("worker-0") },
		"settle":                      func(m *clusterModel) { m.Settle = text("5m") },

		"node_overrides.installer_image": override(t, nodeOverrideModel{InstallerImage: text("registry.example.com/installer")}),
		"node_overrides.hold":            override(t, nodeOverrideModel{Hold: types.BoolValue(true)}),
		"node_overrides.retry_boot_id":   override(t, nodeOverrideModel{RetryBootID: text("2f1c")}),

		"canary_selector":                    func(m *clusterModel) { m.CanarySelector = text("upgrade=first") },
		"selector_overrides.selector":        selecting(t, selectorOverrideModel{Selector: text("upgrade=never"), Hold: types.BoolValue(true)}),
		"selector_overrides.hold":            selecting(t, selectorOverrideModel{Selector: text("upgrade=hold"), Hold: types.BoolValue(false)}),
		"selector_overrides.installer_image": selecting(t, selectorOverrideModel{Selector: text("upgrade=hold"), Hold: types.BoolValue(true), InstallerImage: text("registry.example.com/installer")}),
		"pools.selector":                     inPools(t, poolModel{Selector: text("pool=other"), MaxUnavailable: text("1")}),
		"pools.max_unavailable":              inPools(t, poolModel{Selector: text("pool=storage"), MaxUnavailable: text("2")}),

		"kubernetes.max_unavailable_kubelets": inKubernetes(t, func(k *kubernetesModel) { k.UnavailableKubelets = text("2") }),
		"kubernetes.manifests.sync":           inManifests(t, func(m *manifestsModel) { m.Sync = types.BoolValue(true) }),
		"kubernetes.manifests.prune":          inManifests(t, func(m *manifestsModel) { m.Prune = types.BoolValue(true) }),
		"kubernetes.manifests.timeout":        inManifests(t, func(m *manifestsModel) { m.Timeout = text("7m") }),
		"kubernetes.manifests.force":          inManifests(t, func(m *manifestsModel) { m.Force = types.BoolValue(true) }),

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

// TestEveryFieldIsAChoice: what a user sets is listed with what it decides about.
func TestEveryFieldIsAChoice(t *testing.T) {
	var want, got []string

	for name, attribute := range testSchema(t).Attributes {
		if attribute.IsOptional() || attribute.IsRequired() {
			want = append(want, name)
		}
	}

	for _, one := range (clusterModel{}).choices() {
		got = append(got, one.name)
	}

	slices.Sort(want)
	slices.Sort(got)

	if !slices.Equal(want, got) {
		t.Errorf("the choices are %q, and the user sets %q", got, want)
	}
}
