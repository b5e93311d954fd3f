// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

func TestProblem_SaysWhatToDo(t *testing.T) {
	t.Setenv(talosconfigEnv, "")

	for name, test := range map[string]struct {
		err     error
		access  Credentials
		summary string
		details []string
	}{
		"no credentials": {
			ErrCredentialsMissing,
			Credentials{},
			"Missing credentials for the Talos API",
			[]string{"talosconfig (not set)", "TALOSCONFIG (not set)", "provider block"},
		},
		"unknown configuration": {
			ErrCredentialsUnknown,
			Credentials{Unknown: []string{"talosconfig"}},
			"Unable to read the cluster",
			[]string{"known only after an apply (talosconfig)", "-target"},
		},
		"malformed talosconfig": {
			fmt.Errorf("%w: provider attribute talosconfig: malformed YAML", ErrCredentialsUnusable),
			Credentials{},
			"Unusable credentials",
			[]string{"provider attribute talosconfig: malformed YAML", "Correct them"},
		},
		"expired certificate": {
			fmt.Errorf("endpoint 10.5.0.2: %w: expired on 2026-01-01", cluster.ErrCredentials),
			Credentials{},
			"Unable to read the cluster",
			[]string{"expired on 2026-01-01", "Waiting does not help"},
		},
		"role too low": {
			fmt.Errorf("install: %w", cluster.ErrDenied),
			Credentials{},
			"Unable to read the cluster",
			[]string{"os:admin", "os:reader"},
		},
		"no kubeconfig, and no discovery": {
			fmt.Errorf("%w: %w: %w", errUnlisted, cluster.ErrNoKubeconfig, cluster.ErrDenied),
			Credentials{},
			"Unable to read the cluster",
			[]string{"no kubeconfig was configured", "Set kubeconfig in the provider block", "os:admin"},
		},
		"nothing answers": {
			fmt.Errorf("endpoint 10.5.0.2: %w", cluster.ErrUnreachable),
			Credentials{},
			"Unable to read the cluster",
			[]string{"10.5.0.2", "talosctl version"},
		},
		"too slow": {
			context.DeadlineExceeded, Credentials{}, "Unable to read the cluster", []string{"timeouts.read"},
		},
		"interrupted": {
			context.Canceled, Credentials{}, "Unable to read the cluster", []string{"Run the command again"},
		},
		"something else": {
			errors.New("boom"), Credentials{}, "Unable to read the cluster", []string{"Boom."},
		},
		"failed upgrade": {
			fmt.Errorf("wrapped: %w", &say.Failure{Summary: "Unable to upgrade node cp-0", Seen: "Seen.", State: "State.", Remedy: "Remedy."}),
			Credentials{},
			"Unable to upgrade node cp-0",
			[]string{"Seen.", "State.", "Remedy."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Problem("read the cluster", test.access, test.err)
			if name != "something else" && name != "failed upgrade" {
				told.Noted(t, diag.Diagnostics{got})
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

func TestProblem_FailureOfManyNodesStaysReadable(t *testing.T) {
	failure := &say.Failure{Summary: "Unable to upgrade the cluster", Seen: "Seen.", State: "State.", Remedy: "Remedy."}

	for index := range 1000 {
		failure.Findings = append(failure.Findings, cluster.Finding{Check: "disk-space", Node: fmt.Sprintf("worker-%d", index), Found: "/var is full"})
	}

	want := "Seen.\n\n- worker-0, worker-1, worker-2, worker-3, worker-4, worker-5, worker-6, worker-7, worker-8, worker-9 and 990 more: /var is full (check disk-space).\n\n" +
		"State.\n\nRemedy."
	if got := Problem("upgrade the cluster", Credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	failure.Seen = ""
	if got := Problem("upgrade the cluster", Credentials{}, failure).Detail(); got != strings.TrimPrefix(want, "Seen.\n\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestProblem_LinesOfALogStayAsTheyAre: the command line wraps what is not indented, and a
// list is only one while its elements stand out.
func TestProblem_LinesOfALogStayAsTheyAre(t *testing.T) {
	failure := &say.Failure{
		Summary: "Unable to upgrade node worker-1", Seen: "It is not ready.", State: "It was rolled back.", Remedy: "Look at it.",
		Excerpts: []say.Excerpt{{Source: "the log of machined on worker-1", Lines: []string{"[talos] task startAllServices failed", "  error=\"timeout\""}}},
	}

	want := "It is not ready.\n\nThe last lines of the log of machined on worker-1:\n  [talos] task startAllServices failed\n    error=\"timeout\"\n\n" +
		"It was rolled back.\n\nLook at it."
	if got := Problem("upgrade the cluster", Credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	failure.Excerpts = nil
	failure.Seen, failure.Findings = "", []cluster.Finding{{Check: "node-upgrade", Node: "worker-2", Found: "its log ends with\n[talos] failed\n  error=x"}}

	want = "- worker-2: its log ends with\n    [talos] failed\n      error=x (check node-upgrade).\n\nIt was rolled back.\n\nLook at it."
	if got := Problem("upgrade the cluster", Credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestProblem_PointsAtTheAttributeThatAllFindingsBlame(t *testing.T) {
	blame := func(attributes ...string) *say.Failure {
		failure := &say.Failure{Summary: "Unable to upgrade the cluster"}
		for _, attribute := range attributes {
			failure.Findings = append(failure.Findings, cluster.Finding{Attribute: attribute, Found: "found"})
		}

		return failure
	}

	deep := func(indices ...cluster.Index) *say.Failure {
		failure := &say.Failure{}
		for _, index := range indices {
			failure.Findings = append(failure.Findings, cluster.Finding{Attribute: "canary", Within: []cluster.Within{index}})
		}

		return failure
	}

	for name, test := range map[string]struct {
		failure *say.Failure
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
			if located, ok := FailureProblem(test.failure).(diag.DiagnosticWithPath); ok {
				at = located.Path()
			}

			if !at.Equal(test.at) {
				t.Errorf("points at %q, want %q", at, test.at)
			}
		})
	}
}

// TestProblem_NamesEachEndpointThatDoesNotAnswerOnce once each, with what came of them, in words that
// say nothing of gRPC or of resources.
func TestProblem_NamesEachEndpointThatDoesNotAnswerOnce(t *testing.T) {
	for name, test := range map[string]struct {
		endpoints []string
		want      string
	}{
		"one":                      {[]string{"127.0.0.1:1"}, "No endpoint answered: 127.0.0.1:1 connection refused."},
		"one of them twice":        {[]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"}, "No endpoint answered: 127.0.0.1:1 connection refused; 127.0.0.1:2 connection refused."},
		"a name that nobody knows": {[]string{"nowhere.invalid", "127.0.0.1:2"}, "No endpoint answered: nowhere.invalid no such host; 127.0.0.1:2 connection refused."},
	} {
		t.Run(name, func(t *testing.T) {
			access := Credentials{Endpoints: test.endpoints, Certificate: signedFor(t, time.Now().Add(time.Hour), "os:admin")}
			shared := testSettings()
			shared.Dial = Dial

			_, err := NewClusters(shared, access).Observe(t.Context(), "")

			found := told.Noted(t, diag.Diagnostics{Problem("plan the upgrade", access, err)})[0]
			if detail, _, _ := strings.Cut(found.Detail(), "\n\n"); detail != test.want {
				t.Errorf("got %s, want %s", detail, test.want)
			}
		})
	}
}
