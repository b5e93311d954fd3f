// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

func TestErrorsBecomeDiagnosticsThatSayWhatToDo(t *testing.T) {
	t.Setenv(talosconfigEnv, "")

	for name, test := range map[string]struct {
		err     error
		access  credentials
		summary string
		details []string
	}{
		"no credentials": {
			errMissing,
			credentials{},
			"Missing credentials for the Talos API",
			[]string{"talosconfig (not set)", "TALOSCONFIG (not set)", "provider block"},
		},
		"unknown configuration": {
			errUnknown,
			credentials{Unknown: []string{"talosconfig"}},
			"Unable to read the cluster",
			[]string{"known only after an apply (talosconfig)", "-target"},
		},
		"malformed talosconfig": {
			fmt.Errorf("%w: provider attribute talosconfig: malformed YAML", errUnusable),
			credentials{},
			"Unusable credentials",
			[]string{"provider attribute talosconfig: malformed YAML", "Correct them"},
		},
		"expired certificate": {
			fmt.Errorf("endpoint 10.5.0.2: %w: expired on 2026-01-01", cluster.ErrCredentials),
			credentials{},
			"Unable to read the cluster",
			[]string{"expired on 2026-01-01", "Waiting does not help"},
		},
		"role too low": {
			fmt.Errorf("install: %w", cluster.ErrDenied),
			credentials{},
			"Unable to read the cluster",
			[]string{"os:admin", "os:reader"},
		},
		"no kubeconfig, and no discovery": {
			fmt.Errorf("%w: %w: %w", errUnlisted, cluster.ErrNoKubeconfig, cluster.ErrDenied),
			credentials{},
			"Unable to read the cluster",
			[]string{"no kubeconfig was configured", "Set kubeconfig in the provider block", "os:admin"},
		},
		"nothing answers": {
			fmt.Errorf("endpoint 10.5.0.2: %w", cluster.ErrUnreachable),
			credentials{},
			"Unable to read the cluster",
			[]string{"10.5.0.2", "talosctl version"},
		},
		"too slow": {
			context.DeadlineExceeded, credentials{}, "Unable to read the cluster", []string{"timeouts.read"},
		},
		"interrupted": {
			context.Canceled, credentials{}, "Unable to read the cluster", []string{"Run the command again"},
		},
		"something else": {
			errors.New("boom"), credentials{}, "Unable to read the cluster", []string{"Boom."},
		},
		"failed upgrade": {
			fmt.Errorf("wrapped: %w", &engine.Failure{Summary: "Unable to upgrade node cp-0", Seen: "Seen.", State: "State.", Remedy: "Remedy."}),
			credentials{},
			"Unable to upgrade node cp-0",
			[]string{"Seen.", "State.", "Remedy."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := problem("read the cluster", test.access, test.err)
			if name != "something else" && name != "failed upgrade" {
				noted(t, diag.Diagnostics{got})
			}

			if got.Severity() != diag.SeverityError || got.Summary() != test.summary {
				t.Errorf("%s: %s", got.Severity(), got.Summary())
			}

			for _, detail := range test.details {
				if !strings.Contains(got.Detail(), detail) {
					t.Errorf("does not say %q: %s", detail, got.Detail())
				}
			}
		})
	}
}

func TestFailureOfManyNodesStaysReadable(t *testing.T) {
	failure := &engine.Failure{Summary: "Unable to upgrade the cluster", Seen: "Seen.", State: "State.", Remedy: "Remedy."}

	for index := range 1000 {
		failure.Findings = append(failure.Findings, cluster.Finding{Check: "disk-space", Node: fmt.Sprintf("worker-%d", index), Found: "/var is full"})
	}

	want := "Seen.\n\n- worker-0, worker-1, worker-2, worker-3, worker-4, worker-5, worker-6, worker-7, worker-8, worker-9 and 990 more: /var is full (check disk-space).\n\n" +
		"State.\n\nRemedy."
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	failure.Seen = ""
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != strings.TrimPrefix(want, "Seen.\n\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestLinesOfALogStayAsTheyAre: the command line wraps what is not indented, and a
// list is only one while its elements stand out.
func TestLinesOfALogStayAsTheyAre(t *testing.T) {
	failure := &engine.Failure{
		Summary: "Unable to upgrade node worker-1", Seen: "It is not ready.", State: "It was rolled back.", Remedy: "Look at it.",
		Excerpts: []engine.Excerpt{{Source: "the log of machined on worker-1", Lines: []string{"[talos] task startAllServices failed", "  error=\"timeout\""}}},
	}

	want := "It is not ready.\n\nThe last lines of the log of machined on worker-1:\n  [talos] task startAllServices failed\n    error=\"timeout\"\n\n" +
		"It was rolled back.\n\nLook at it."
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	failure.Excerpts = nil
	failure.Seen, failure.Findings = "", []cluster.Finding{{Check: "node-upgrade", Node: "worker-2", Found: "its log ends with\n[talos] failed\n  error=x"}}

	want = "- worker-2: its log ends with\n    [talos] failed\n      error=x (check node-upgrade).\n\nIt was rolled back.\n\nLook at it."
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFailurePointsAtTheAttributeThatAllFindingsBlame(t *testing.T) {
	blame := func(attributes ...string) *engine.Failure {
		failure := &engine.Failure{Summary: "Unable to upgrade the cluster"}
		for _, attribute := range attributes {
			failure.Findings = append(failure.Findings, cluster.Finding{Attribute: attribute, Found: "found"})
		}

		return failure
	}

	deep := func(indices ...cluster.Index) *engine.Failure {
		failure := &engine.Failure{}
		for _, index := range indices {
			failure.Findings = append(failure.Findings, cluster.Finding{Attribute: "canary", Within: []cluster.Within{index}})
		}

		return failure
	}

	for name, test := range map[string]struct {
		failure *engine.Failure
		at      path.Path
	}{
		"none":      {blame(), path.Empty()},
		"one":       {blame("node_overrides"), path.Root("node_overrides")},
		"agreeing":  {blame("drain", "drain"), path.Root("drain")},
		"different": {blame("drain", "talos_version"), path.Empty()},
		"some":      {blame("drain", ""), path.Empty()},
		"one deep":  {deep(0), path.Root("canary").AtListIndex(0)},
		"same deep": {deep(1, 1), path.Root("canary").AtListIndex(1)},
		"two deep":  {deep(0, 1), path.Empty()},
	} {
		t.Run(name, func(t *testing.T) {
			at := path.Empty()
			if located, ok := failed(test.failure).(diag.DiagnosticWithPath); ok {
				at = located.Path()
			}

			if !at.Equal(test.at) {
				t.Errorf("points at %q, want %q", at, test.at)
			}
		})
	}
}

func TestFailedCreationExplainsTheState(t *testing.T) {
	located := creation(diag.NewAttributeErrorDiagnostic(path.Root("drain"), "Unable", "Because."))
	if at, ok := located.(diag.DiagnosticWithPath); !ok || !at.Path().Equal(path.Root("drain")) {
		t.Error("the attribute got lost")
	}

	for _, text := range []string{"Because.", "nothing is tainted", "run apply again", "To give up"} {
		if !strings.Contains(located.Detail(), text) {
			t.Errorf("does not say %q", text)
		}
	}
}

func TestTheSameFindingOnSeveralNodesIsSaidOnce(t *testing.T) {
	got := findingList([]cluster.Finding{
		{Check: "component-images", Node: "worker-0", Found: "not pinned", Remedy: "Pin it."},
		{Check: "talos-api", Found: "no answer"},
		{Check: "component-images", Node: "worker-1", Found: "not pinned", Remedy: "Pin it."},
	})

	want := "- worker-0, worker-1: not pinned (check component-images). Pin it.\n- no answer (check talos-api)."
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestOneCauseIsOneFinding: a reader may neither read machine configurations nor have a
// kubeconfig, and hears of the role alone.
func TestOneCauseIsOneFinding(t *testing.T) {
	reader := threeNodes("1.12.6", "1.34.2")
	reader.roles, reader.kubernetesDown = []string{"os:reader"}, fmt.Errorf("%w: %w", cluster.ErrNoKubeconfig, cluster.ErrDenied)

	for index := range reader.nodes {
		reader.nodes[index].unread = true
	}

	_, diagnostics := planned(t, reader.clusters(t), nil, desired("1.13.4", ""))
	check(t, diagnostics,
		outcome{diag.SeverityWarning, "carry os:reader; an upgrade needs os:admin; because of that, component-images, control-plane-components, kubernetes-api, lock, nodes-ready, schematic could not be checked (check roles)"},
		outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"})

	if lines := strings.Count(diagnostics[0].Detail(), "\n- "); lines != 0 {
		t.Errorf("%d more findings:\n%s", lines, diagnostics[0].Detail())
	}

	away := threeNodes("1.12.6", "1.34.2")
	away.kubernetesDown = cluster.ErrUnreachable

	_, diagnostics = planned(t, away.clusters(t), nil, desired("1.13.4", ""))
	check(t, diagnostics,
		outcome{diag.SeverityWarning, "because of that, control-plane-components, lock, nodes-ready could not be checked (check kubernetes-api)"},
		outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"})
}
