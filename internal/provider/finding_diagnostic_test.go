// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// pathText is the path of a diagnostic as a configuration would write it; empty
// for one without.
func pathText(diagnostic diag.Diagnostic) string {
	located, ok := diagnostic.(diag.DiagnosticWithPath)
	if !ok {
		return ""
	}

	return located.Path().String()
}

func TestFindingsPointIntoTheConfiguration(t *testing.T) {
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
		if got := findingPath(finding).String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestDiagnosticsPointAtWhatTheCommandLineFinds: it shows the first line of the
// resource for anything deeper than an element.
func TestDiagnosticsPointAtWhatTheCommandLineFinds(t *testing.T) {
	node := path.Root("node_overrides").AtMapKey("worker-0")

	for want, at := range map[string]path.Path{
		"":                           path.Empty(),
		"talos_version":              path.Root("talos_version"),
		"canary[2]":                  path.Root("canary").AtListIndex(2),
		"drain":                      path.Root("drain").AtName("timeout"),
		"kubernetes":                 path.Root("kubernetes").AtName("images").AtName("proxy"),
		`node_overrides["worker-0"]`: node.AtName("installer_image"),
	} {
		if got := visible(at).String(); got != want {
			t.Errorf("%s is shown as %s, want %s", at, got, want)
		}
	}

	deep := cluster.Finding{
		Check: "x", Severity: cluster.Permanent, Found: "wrong", Attribute: "node_overrides",
		Within: []cluster.Within{cluster.Key("worker-0"), cluster.Field("installer_image")},
	}

	diagnostics := planFindings([]cluster.Finding{deep}, true, observation{name: "demo"})
	check(t, diagnostics, outcome{diag.SeverityError, `node_overrides["worker-0"].installer_image`})

	if got := pathText(diagnostics[0]); got != node.String() {
		t.Errorf("points at %s", got)
	}
}

func TestFindingsAreGroupedByPlace(t *testing.T) {
	at := func(node, found string, within ...cluster.Within) cluster.Finding {
		return cluster.Finding{Check: "x", Severity: cluster.Permanent, Node: node, Attribute: "canary", Within: within, Found: found, Remedy: "Correct it."}
	}

	diagnostics := planFindings([]cluster.Finding{
		at("", "first", cluster.Index(0)), at("", "second", cluster.Index(1)), at("", "third", cluster.Index(0)), at("worker-0", "whole"),
		{Check: "y", Severity: cluster.Permanent, Found: "nowhere"},
	}, true, observation{name: "demo"})

	check(t, diagnostics,
		outcome{diag.SeverityError, "third"}, outcome{diag.SeverityError, "Second.\n\nCorrect it."},
		outcome{diag.SeverityError, "of node worker-0\nWhole."}, outcome{diag.SeverityError, "Nowhere."})

	var places []string
	for _, diagnostic := range diagnostics {
		places = append(places, pathText(diagnostic))
	}

	if !slices.Equal(places, []string{"canary[0]", "canary[1]", "canary", ""}) {
		t.Errorf("got %q", places)
	}
}

// TestEveryFindingPointsAtSomethingThatExists: whatever a configuration asks
// for, the plan's objections point at a value that is in it.
func TestEveryFindingPointsAtSomethingThatExists(outer *testing.T) {
	schema := testSchema(outer)

	rapid.Check(outer, func(t *rapid.T) {
		fake := threeNodes(drawVersion(t, "runs"), "1.34."+rapid.SampledFrom([]string{"0", "2"}).Draw(t, "kubernetes patch"))
		fake.nodes[1].talos = drawVersion(t, "worker-0 runs")

		node := rapid.SampledFrom([]string{"cp-0", "worker-0", "worker-1", "ghost"})
		image := rapid.SampledFrom([]string{"", genericImage, factoryImage, "factory.talos.dev/aws-installer/" + factoryImage[len(factoryImage)-64:], "Not A Reference"})

		target := cluster.Target{Talos: version.MustParse(drawVersion(t, "target")), InstallerImage: image.Draw(t, "image")}
		if rapid.Bool().Draw(t, "manages Kubernetes") {
			target.Kubernetes = version.MustParse(rapid.SampledFrom([]string{"1.33.0", "1.34.2", "1.35.1", "1.36.0", "1.60.0"}).Draw(t, "Kubernetes"))
		}

		policy := cluster.DefaultPolicy()
		policy.Canary = rapid.SliceOfNDistinct(node, 0, 3, rapid.ID).Draw(t, "canary")
		policy.Hold = rapid.MapOfN(node, rapid.Bool(), 0, 2).Draw(t, "hold")
		policy.Images = rapid.MapOfN(node, image, 0, 2).Draw(t, "images")
		policy.Retry = rapid.MapOfN(node, rapid.Just("boot"), 0, 1).Draw(t, "retry")
		policy.Kubernetes.Images = rapid.MapOfN(rapid.SampledFrom(cluster.Components(cluster.ControlPlane)), image, 0, 2).Draw(t, "images of components")
		policy.Drain.Enabled = rapid.Bool().Draw(t, "drain")
		policy.AllowIntermediate = rapid.Bool().Draw(t, "intermediate")
		policy.AllowUnknown = rapid.Bool().Draw(t, "unknown")

		for range rapid.IntRange(0, 2).Draw(t, "number of intermediate versions") {
			policy.Intermediate = append(policy.Intermediate, version.MustParse(drawVersion(t, "through")))
		}

		seen, err := fake.clusters(outer).observe(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}

		for _, finding := range plan.Make(seen.Observation, target, policy).Findings {
			if finding.Attribute == "" {
				if len(finding.Within) > 0 {
					t.Fatalf("within nothing: %v", finding)
				}

				continue
			}

			if _, diagnostics := schema.TypeAtPath(t.Context(), findingPath(finding)); diagnostics.HasError() {
				t.Fatalf("%s does not exist: %v", findingPath(finding), diagnostics)
			}

			if problem := absent(finding, policy); problem != "" {
				t.Fatalf("%s: %s", problem, finding)
			}
		}
	})
}

func drawVersion(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{"1.9.4", "1.11.3", "1.12.6", "1.13.0", "1.13.4", "1.14.0", "1.15.0", "1.99.0"}).Draw(t, label)
}

// absent says what is wrong with the place of a finding: the policy has no such
// element. Empty means that it is there.
func absent(finding cluster.Finding, policy cluster.Policy) string {
	if len(finding.Within) == 0 {
		return ""
	}

	length := map[string]int{attrCanary: len(policy.Canary), attrIntermediateVersions: len(policy.Intermediate)}

	switch step := finding.Within[0].(type) {
	case cluster.Index:
		if int(step) >= length[finding.Attribute] {
			return fmt.Sprintf("there is no element %d", step)
		}
	case cluster.Key:
		_, held := policy.Hold[string(step)]
		_, image := policy.Images[string(step)]
		_, retry := policy.Retry[string(step)]

		if !held && !image && !retry {
			return fmt.Sprintf("there is no override for %q", string(step))
		}
	}

	return ""
}

// TestFindingsOfManyNodesStayReadable: what is alike is said once, and what is
// not alike is counted from some number on.
func TestFindingsOfManyNodesStayReadable(t *testing.T) {
	t.Parallel()

	var alike, different []cluster.Finding

	for index := range 1000 {
		node := fmt.Sprintf("worker-%d", index)
		alike = append(alike, cluster.Finding{Check: "silent", Severity: cluster.Observed, Node: node, Found: "it is silent", Remedy: "Wait."})
		different = append(different, cluster.Finding{Check: "reachable", Severity: cluster.Observed, Node: node, Found: "no answer at " + address(index), Remedy: "Look."})
	}

	other := cluster.Finding{Check: "etcd", Severity: cluster.Observed, Found: "one learner"}

	for want, findings := range map[string][]cluster.Finding{
		"- worker-0, worker-1, worker-2, worker-3, worker-4, worker-5, worker-6, worker-7, worker-8, worker-9 and 990 more: it is silent (check silent). Wait.\n" +
			"- one learner (check etcd).": append(slices.Clip(alike), other),
		"- worker-0: it is silent (check silent). Wait.": alike[:1],
	} {
		if got := findingList(findings); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	}

	lines := strings.Split(findingList(append(slices.Clip(different), other)), "\n")
	if len(lines) != 12 || lines[10] != "- one learner (check etcd)." || lines[11] != "- and 990 more findings of check reachable" {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}

	text := ""
	for _, diagnostic := range planFindings(slices.Concat(alike, different), true, observation{name: "demo"}) {
		text += diagnostic.Summary() + diagnostic.Detail()
	}

	if len(text) > 4096 {
		t.Errorf("%d bytes about silent workers", len(text))
	}
}

// TestExpiredCertificateIsSaidOnce, naming the nodes.
func TestExpiredCertificateIsSaidOnce(t *testing.T) {
	var findings []cluster.Finding

	for _, node := range []cluster.Node{{Name: "cp-0", Address: "10.5.0.2"}, {Name: "cp-1", Address: "10.5.0.3"}, {Name: "worker-0", Address: "10.5.0.4"}} {
		node.Unreachable = fmt.Errorf("unable to read the boot ID of node %s: %w: the client certificate expired on 2026-03-04T05:06:07Z: remote error: tls: expired certificate (through endpoint 10.5.0.2)",
			node.Address, cluster.ErrCredentials)
		findings = append(findings, plan.Unaccepted(node))
	}

	const want = "- cp-0, cp-1, worker-0: its Talos API does not accept the credentials: the client certificate expired on 2026-03-04T05:06:07Z: " +
		"remote error: tls: expired certificate (through endpoint 10.5.0.2) (check talos-api). " +
		"Use a talosconfig of this cluster, and renew its certificate if it expired; waiting does not help."
	if got := findingList(findings); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
