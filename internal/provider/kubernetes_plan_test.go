// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestOneKubeletSetBackIsDrift: it is found at the refresh, and only that one is
// brought back.
func TestOneKubeletSetBackIsDrift(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "1.34.2")
	fake.nodes[1].kubelet, fake.nodes[1].images = "1.34.1", map[cluster.Component]string{cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.34.1"}

	refreshed, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	got, diagnostics := planned(t, fake.clusters(t), refreshed, refreshed)
	check(t, diagnostics, outcome{diag.SeverityWarning, "Rolling upgrade of 1 of 3 nodes"})

	if !got.Status.IsUnknown() || !got.Nodes.IsUnknown() {
		t.Error("computed values are planned as known")
	}

	if text := diagnostics[0].Detail(); !strings.Contains(text, "kubelet              worker-0") || strings.Contains(text, "cp-0") || strings.Contains(text, "kube-apiserver") {
		t.Errorf("the plan is\n%s", text)
	}
}

func TestPlanSaysWhatStandsInTheWayOfKubernetes(t *testing.T) {
	gate := cluster.Removal{
		Kind: "feature gate", Name: "SizeMemoryBackedVolumes", Address: address(0), Component: cluster.APIServer, In: version.MustParse("1.35.0"),
	}
	change := cluster.ManifestChange{Object: "DaemonSet/kube-system/kube-proxy", Action: cluster.ManifestConfigured, Diff: "-  image: old\n+  image: new\n"}
	roll := outcome{diag.SeverityWarning, "Kubernetes 1.34.2 -> 1.35.0"}

	for name, test := range map[string]struct {
		change            func(*fakeCluster)
		talos, kubernetes string
		want              []outcome
		asked             bool
	}{
		"nothing": {func(*fakeCluster) {}, "", "1.35.0", []outcome{roll}, true},
		"what is removed is a warning": {
			func(f *fakeCluster) { f.removals = []cluster.Removal{gate} }, "", "1.35.0",
			[]outcome{{diag.SeverityWarning, "cp-0: its kube-apiserver uses the feature gate SizeMemoryBackedVolumes"}, roll},
			true,
		},
		"manifests that differ are shown": {
			func(f *fakeCluster) { f.changes = []cluster.ManifestChange{change} }, "", "1.35.0",
			[]outcome{{diag.SeverityWarning, "  change DaemonSet/kube-system/kube-proxy\n      -  image: old\n      +  image: new\n"}},
			true,
		},
		"manifests follow Kubernetes into a roll of Talos": {
			func(f *fakeCluster) { f.changes = []cluster.ManifestChange{change} }, "1.13.4", "1.34.2",
			[]outcome{{diag.SeverityWarning, "one control plane"}, {diag.SeverityWarning, "change DaemonSet/kube-system/kube-proxy"}},
			true,
		},
		"a plan that is refused is not looked at": {
			func(f *fakeCluster) { f.removals = []cluster.Removal{gate} }, "", "1.36.0",
			[]outcome{{diag.SeverityError, "1.36.0 is asked for"}},
			false,
		},
		"a cluster with nothing to do is not looked at": {
			func(f *fakeCluster) { f.changes = []cluster.ManifestChange{change} }, "1.12.6", "1.34.2", nil, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.12.6", "1.34.2")
			fake.store = refusing{t}
			test.change(fake)

			_, diagnostics := planned(t, fake.clusters(t), nil, desired(test.talos, test.kubernetes))
			check(t, diagnostics, test.want...)

			if asked := fake.inspected.Load() > 0; asked != test.asked {
				t.Errorf("the cluster was asked: %t", asked)
			}
		})
	}
}

// TestBothHalvesAreShownInTheirOrder: what moves first comes first.
func TestBothHalvesAreShownInTheirOrder(t *testing.T) {
	plan := desired("1.13.4", "1.36.0")
	plan.AllowIntermediate = types.BoolValue(true)

	_, diagnostics := planned(t, threeNodes("1.12.6", "1.34.2").clusters(t), nil, plan)

	text := diagnostics[len(diagnostics)-1].Detail()
	last := -1

	for _, heading := range []string{"Hop 1 of 3: Talos 1.12.6 -> 1.13.4", "Hop 2 of 3: Kubernetes 1.34.2 -> 1.35.", "Hop 3 of 3: Kubernetes 1.35.", "bootstrap manifests"} {
		at := strings.LastIndex(text, heading)
		if at <= last {
			t.Errorf("%q is not where it should be in\n%s", heading, text)
		}

		last = at
	}
}

func TestManifestChangesStayReadable(t *testing.T) {
	if got := changeTexts(nil); got != nil {
		t.Errorf("nothing is %q", got)
	}

	var changes []cluster.ManifestChange

	for number := range 200 {
		changes = append(changes, cluster.ManifestChange{
			Object: fmt.Sprintf("ConfigMap/kube-system/map-%d", number), Action: cluster.ManifestCreated, Diff: strings.Repeat("+ a line\n", 300),
		})
	}

	text := strings.Join(changeTexts(changes), "\n")
	if lines := strings.Count(text, "\n"); lines > 140 {
		t.Errorf("%d lines", lines)
	}

	for _, want := range []string{"  create ConfigMap/kube-system/map-19\n", "... 280 more lines", "... 300 more lines", "... 180 more objects"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}

	const adoption = "--- a/v1.Service/x\n+++ b/v1.Service/x\n@@ -1,3 +1,5 @@\n kind: Service\n metadata:\n+  annotations:\n+    config.k8s.io/owning-inventory: y\n   name: x\n"

	adopted := []cluster.ManifestChange{
		{Object: "Service/x", Action: cluster.ManifestConfigured, Diff: adoption},
		{Object: "Service/y", Action: cluster.ManifestConfigured, Diff: adoption + "+  more: z\n"},
		{Object: "Service/z", Action: cluster.ManifestConfigured, Diff: adoption},
		// Of a Secret, only labels and annotations are ever shown.
		{Object: "Secret/kube-system/a", Action: cluster.ManifestConfigured, Diff: strings.ReplaceAll(adoption, "Service", "Secret")},
		{Object: "Secret/kube-system/b", Action: cluster.ManifestConfigured, Diff: "(the content of a Secret is not shown)\n"},
	}
	want := "  change Service/y\n      @@ -1,3 +1,5 @@\n       kind: Service\n       metadata:\n      +  annotations:\n" +
		"      +    config.k8s.io/owning-inventory: y\n         name: x\n      +  more: z\n" +
		"  change Secret/kube-system/b\n      (the content of a Secret is not shown)\n" +
		"  adopt 3 objects: nothing but the annotation config.k8s.io/owning-inventory is added to them"

	if got := changeTexts(adopted); got[1] != want {
		t.Errorf("got\n%s\nwant\n%s", got[1], want)
	}

	for _, diff := range []string{"", "\n", "+ one", "+ one\n+ two\n"} {
		if got, want := len(diffLines(diff, 1)), strings.Count(strings.Trim(diff, "\n"), "+"); got != want {
			t.Errorf("%q has %d lines, want %d", diff, got, want)
		}
	}
}

// TestPlanSaysWhyManifestsStay: who does not manage Kubernetes is told that nothing of
// it is synced, and how to have it synced all the same.
func TestPlanSaysWhyManifestsStay(t *testing.T) {
	sync := func(on bool) func(*clusterModel) {
		return inManifests(t, func(m *manifestsModel) { m.Sync = types.BoolValue(on) })
	}

	for name, test := range map[string]struct {
		kubernetes string
		change     func(*clusterModel)
		says       string
	}{
		"Kubernetes is not managed":                 {"", nothingElse, "because kubernetes_version is unset; kubernetes.manifests.sync = true brings them up to date."},
		"Kubernetes is not managed, and they are":   {"", sync(true), ""},
		"Kubernetes is managed":                     {"1.34.2", nothingElse, ""},
		"Kubernetes is managed, and they are not":   {"1.34.2", sync(false), "because kubernetes.manifests.sync is false."},
		"somebody else upgrades, and knows of none": {"", func(m *clusterModel) { m.Mode = types.StringValue(modeDelegate) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			model := desired("1.13.4", test.kubernetes)
			test.change(model)

			text := noted(t, diag.Diagnostics{rollWarning(plan.Plan{}, "demo", nil, model.unsynced())})[0].Detail()
			if test.says == "" && strings.Contains(text, "stay as they are") || !strings.Contains(text, test.says) {
				t.Errorf("got\n%s", text)
			}
		})
	}
}
