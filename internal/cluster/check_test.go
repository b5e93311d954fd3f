// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"regexp"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestCheck_NamesCanBeWrittenByPeople(t *testing.T) {
	t.Parallel()

	spelling, seen := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`), map[string]bool{}

	for _, check := range cluster.Checks() {
		if !spelling.MatchString(check.Name) || check.About == "" || seen[check.Name] {
			t.Errorf("%+v is spelled in another way, says nothing or is there twice", check)
		}

		seen[check.Name] = true

		if found, ok := cluster.CheckNamed(check.Name); !ok || found != check {
			t.Errorf("%s is found as %+v", check.Name, found)
		}
	}

	if _, ok := cluster.CheckNamed("no-such-check"); ok {
		t.Error("a check was found that there is not")
	}
}

func TestCheck_SkippingTurnsIntoAdviceWhatIsNotFirm(t *testing.T) {
	t.Parallel()

	policy := cluster.Policy{SkipChecks: map[string]bool{cluster.CheckTwoMembers: true, cluster.CheckEtcdQuorum: true, cluster.CheckDrain: true}}

	for name, given := range map[string]struct {
		finding cluster.Finding
		want    cluster.Severity
		skipped bool
	}{
		"skipped":            {cluster.Finding{Check: cluster.CheckTwoMembers, Severity: cluster.Observed}, cluster.Advice, true},
		"skipped, permanent": {cluster.Finding{Check: cluster.CheckDrain, Severity: cluster.Permanent}, cluster.Advice, true},
		"firm":               {cluster.Finding{Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed}, cluster.Observed, false},
		"not skipped":        {cluster.Finding{Check: cluster.CheckTimeSync, Severity: cluster.Observed}, cluster.Observed, false},
		"advice anyway":      {cluster.Finding{Check: cluster.CheckDrain, Severity: cluster.Advice}, cluster.Advice, false},
		"unknown to anybody": {cluster.Finding{Check: "something-else", Severity: cluster.Observed}, cluster.Observed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			before := []cluster.Finding{given.finding}

			after := policy.Skip(before)
			if after[0].Severity != given.want || after[0].Skipped != given.skipped {
				t.Errorf("got %+v, want severity %d and skipped %t", after[0], given.want, given.skipped)
			}

			if before[0].Severity != given.finding.Severity {
				t.Error("the findings that were given were changed")
			}
		})
	}
}
