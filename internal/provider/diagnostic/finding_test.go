// SPDX-License-Identifier: MPL-2.0

package diagnostic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

func TestDiagnostic_SameFindingOnSeveralNodesIsSaidOnce(t *testing.T) {
	got := List([]cluster.Finding{
		{Check: "component-images", Node: "worker-0", Found: "not pinned", Remedy: "Pin it."},
		{Check: "talos-api", Found: "no answer"},
		{Check: "component-images", Node: "worker-1", Found: "not pinned", Remedy: "Pin it."},
	})

	want := "- worker-0, worker-1: not pinned (check component-images). Pin it.\n- no answer (check talos-api)."
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestFinding_PointsIntoTheConfiguration(t *testing.T) {
	for want, finding := range map[string]cluster.Finding{
		"":              {},
		"talos_version": {Attribute: "talos_version"},
		"canary[2]":     {Attribute: "canary", Within: []cluster.Within{cluster.Index(2)}},
		"kubernetes.images.proxy": {
			Attribute: "kubernetes", Within: []cluster.Within{cluster.Field("images"), cluster.Field("proxy")},
		},
		"drain.enabled":  {Attribute: "drain", Within: []cluster.Within{cluster.Field("enabled")}},
		"node_overrides": {Attribute: "node_overrides"},
		`node_overrides["worker-0"].installer_image`: {
			Attribute: "node_overrides", Within: []cluster.Within{cluster.Key("worker-0"), cluster.Field("installer_image")},
		},
		`node_overrides["a.b"]`: {Attribute: "node_overrides", Within: []cluster.Within{cluster.Key("a.b")}},
	} {
		if got := PathOf(finding).String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestDiagnostic_PointsAtWhatTheCommandLineFinds: it shows the first line of the
// resource for anything deeper than an element.
func TestDiagnostic_PointsAtWhatTheCommandLineFinds(t *testing.T) {
	node := path.Root("node_overrides").AtMapKey("worker-0")

	for want, at := range map[string]path.Path{
		"":                           path.Empty(),
		"talos_version":              path.Root("talos_version"),
		"canary[2]":                  path.Root("canary").AtListIndex(2),
		"drain":                      path.Root("drain").AtName("timeout"),
		"kubernetes":                 path.Root("kubernetes").AtName("images").AtName("proxy"),
		`node_overrides["worker-0"]`: node.AtName("installer_image"),
	} {
		if got := Visible(at).String(); got != want {
			t.Errorf("%s is shown as %s, want %s", at, got, want)
		}
	}

	deep := cluster.Finding{
		Check: "x", Severity: cluster.Permanent, Found: "wrong", Attribute: "node_overrides",
		Within: []cluster.Within{cluster.Key("worker-0"), cluster.Field("installer_image")},
	}

	diagnostics := OfFindings([]cluster.Finding{deep}, true, true, "demo", nil)
	if len(diagnostics) != 1 || !strings.Contains(diagnostics[0].Detail(), `node_overrides["worker-0"].installer_image`) {
		t.Fatalf("got %v", diagnostics)
	}

	if located, ok := diagnostics[0].(diag.DiagnosticWithPath); !ok || !located.Path().Equal(node) {
		t.Errorf("points at another place: %v", diagnostics[0])
	}
}

func TestFinding_IsGroupedByPlace(t *testing.T) {
	at := func(node, found string, within ...cluster.Within) cluster.Finding {
		return cluster.Finding{Check: "x", Severity: cluster.Permanent, Node: node, Attribute: "canary", Within: within, Found: found, Remedy: "Correct it."}
	}

	diagnostics := OfFindings([]cluster.Finding{
		at("", "first", cluster.Index(0)), at("", "second", cluster.Index(1)), at("", "third", cluster.Index(0)), at("worker-0", "whole"),
		{Check: "y", Severity: cluster.Permanent, Found: "nowhere"},
	}, true, true, "demo", nil)

	want := []diag.Diagnostic{
		diag.NewAttributeErrorDiagnostic(path.Root("canary").AtListIndex(0), "Unable to plan the upgrade", "- first (check x). Correct it.\n- third (check x). Correct it.\n\nThe value at fault is canary[0]."),
		diag.NewAttributeErrorDiagnostic(path.Root("canary").AtListIndex(1), "Unable to plan the upgrade", "Second.\n\nCorrect it.\n\nThe value at fault is canary[1]."),
		diag.NewAttributeErrorDiagnostic(path.Root("canary"), "Unable to plan the upgrade of node worker-0", "Whole.\n\nCorrect it."),
		diag.NewErrorDiagnostic("Unable to plan the upgrade", "Nowhere."),
	}
	if !diagnostics.Equal(want) {
		t.Errorf("got  %v\nwant %v", diagnostics, want)
	}
}

// TestFinding_OfManyNodesStaysReadable: what is alike is said once, and what is
// not alike is counted from some number on.
func TestFinding_OfManyNodesStaysReadable(t *testing.T) {
	t.Parallel()

	var alike, different []cluster.Finding

	for index := range 1000 {
		node := fmt.Sprintf("worker-%d", index)
		alike = append(alike, cluster.Finding{Check: "silent", Severity: cluster.Observed, Node: node, Found: "it is silent", Remedy: "Wait."})
		different = append(different, cluster.Finding{Check: "reachable", Severity: cluster.Observed, Node: node, Found: fmt.Sprintf("no answer at 10.5.0.%d", index), Remedy: "Look."})
	}

	other := cluster.Finding{Check: "etcd", Severity: cluster.Observed, Found: "one learner"}

	for want, findings := range map[string][]cluster.Finding{
		"- worker-0, worker-1, worker-2, worker-3, worker-4, worker-5, worker-6, worker-7, worker-8, worker-9 and 990 more: it is silent (check silent). Wait.\n" +
			"- one learner (check etcd).": append(slices.Clip(alike), other),
		"- worker-0: it is silent (check silent). Wait.": alike[:1],
	} {
		if got := List(findings); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	}

	lines := strings.Split(List(append(slices.Clip(different), other)), "\n")
	if len(lines) != 12 || lines[10] != "- one learner (check etcd)." || lines[11] != "- and 990 more findings of check reachable" {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}

	text := ""
	for _, diagnostic := range OfFindings(slices.Concat(alike, different), true, true, "demo", nil) {
		text += diagnostic.Summary() + diagnostic.Detail()
	}

	if len(text) > 4096 {
		t.Errorf("%d bytes about silent workers", len(text))
	}
}

// TestFinding_ExpiredCertificateIsSaidOnce, naming the nodes.
func TestFinding_ExpiredCertificateIsSaidOnce(t *testing.T) {
	var findings []cluster.Finding

	for _, node := range []cluster.Node{{Name: "cp-0", Address: "10.5.0.2"}, {Name: "cp-1", Address: "10.5.0.3"}, {Name: "worker-0", Address: "10.5.0.4"}} {
		node.Unreachable = fmt.Errorf("unable to read the boot ID of node %s: %w: the client certificate expired on 2026-03-04T05:06:07Z: remote error: tls: expired certificate (through endpoint 10.5.0.2)",
			node.Address, cluster.ErrCredentials)
		findings = append(findings, plan.Unaccepted(node))
	}

	const want = "- cp-0, cp-1, worker-0: its Talos API does not accept the credentials: the client certificate expired on 2026-03-04T05:06:07Z: " +
		"remote error: tls: expired certificate (through endpoint 10.5.0.2) (check talos-api). " +
		"Use a talosconfig of this cluster, and renew its certificate if it expired; waiting does not help."
	if got := List(findings); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
