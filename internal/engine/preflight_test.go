// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
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

// TestEveryCheckPassesOnAHealthyCluster also shows that every check is made.
func TestEveryCheckPassesOnAHealthyCluster(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		e := newExamined(r)
		e.request = both(toLifecycle, toKubernetes)
		healthy := newExamined(r)
		e.request.Gates, e.request.Window, e.request.Snapshots = healthy.request.Gates, healthy.request.Window, healthy.request.Snapshots

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

// TestEveryCheckTellsWhatItFinds drives each check to a failure and, where there
// is something that it could fail to learn, to not knowing.
func TestEveryCheckTellsWhatItFinds(t *testing.T) {
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

// TestSkippedChecksAreAdvice shows for each failure that the policy may skip that
// it stops an apply, and that skipping makes it advice which is still told.
func TestSkippedChecksAreAdvice(t *testing.T) {
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
