// SPDX-License-Identifier: MPL-2.0

package say_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestNode_StateIsThatOfTheNode: how a node is left follows from how far its upgrade has come,
// whatever made it end.
func TestNode_StateIsThatOfTheNode(t *testing.T) {
	t.Parallel()

	before, next := version.MustParse("1.13.2"), version.MustParse("1.13.4")
	phase := func(p cluster.Phase) cluster.Entry { return cluster.Entry{Phase: p, Previous: before, Target: next} }

	for name, row := range map[string]struct {
		left say.Node
		want string
	}{
		"nothing done":                     {say.Node{}, "The node runs as before and is not cordoned by this run."},
		"cordoned":                         {say.Node{Cordoned: true, Runs: before}, "The node runs its old system and is still cordoned."},
		"about to be installed":            {say.Node{Open: true, Entry: phase(cluster.PhaseIntent), Cordoned: true, Runs: before}, "nothing was installed, and the journal records what was about to be"},
		"perhaps installed":                {say.Node{Open: true, Entry: phase(cluster.PhaseIntent), MayHaveInstalled: true, Cordoned: true, Runs: before}, "A new system may be installed beside the running one"},
		"about to reboot":                  {say.Node{Open: true, Entry: phase(cluster.PhaseRebooting), MayHaveInstalled: true, Cordoned: true, Runs: before}, "about to reboot into the new system"},
		"returned, not in service":         {say.Node{Open: true, Entry: phase(cluster.PhaseRebooting), MayHaveInstalled: true, Rebooted: true, Cordoned: true, Runs: next}, "runs the new system and is not back in service yet"},
		"in service, not confirmed":        {say.Node{Open: true, Entry: phase(cluster.PhaseRebooting), InService: true, Rebooted: true, Runs: next}, "runs the new system and is in service; only its entry"},
		"on its old system, not confirmed": {say.Node{Open: true, Entry: phase(cluster.PhaseInstalled), MayHaveInstalled: true, Rebooted: true, Runs: before}, "runs its old system and is in service; only its entry"},
		"being sent back":                  {say.Node{Open: true, Entry: phase(cluster.PhaseRollingBack), MayHaveInstalled: true, Cordoned: true, Runs: next}, "was to start its old system again"},
	} {
		if got := row.left.Failure(errors.New("it did not work")).State; !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestFailure_InterruptedUpgradesDidNotFail: a cancel ends all upgrades that are running, and none of their nodes is at
// fault.
func TestFailure_InterruptedUpgradesDidNotFail(t *testing.T) {
	t.Parallel()

	beside := func(name string, err error) cluster.Finding {
		other := say.Node{Step: plan.Step{Node: name}}.Failure(err)

		return cluster.Finding{Check: say.CheckNodeUpgrade, Node: name, Err: other}
	}

	failed := say.Node{Step: plan.Step{Node: "worker-0"}}.Failure(context.Canceled)
	failed.Findings = []cluster.Finding{beside("worker-1", context.Canceled), beside("worker-2", say.ErrFallback)}

	if got := failed.Nodes(); !slices.Equal(got, []string{"worker-2"}) {
		t.Errorf("%q failed, want worker-2 alone", got)
	}
}

// TestNode_InterruptedSaysWhatWasGoingOn: by the step that was entered last, or by what the next
// one waited for; and there is more to do about a node that something was done to.
func TestNode_InterruptedSaysWhatWasGoingOn(t *testing.T) {
	t.Parallel()

	step := plan.Step{Node: "worker-1", To: version.MustParse("1.13.4")}

	for want, left := range map[string]say.Node{
		"waiting for worker-1 to say what it runs":        {},
		"waiting until it was safe to reboot worker-1":    {At: cluster.StepInstall, Waits: "it was safe to reboot worker-1"},
		"while Talos 1.13.4 was being installed on":       {At: cluster.StepInstall},
		"while worker-1 was rebooting":                    {At: cluster.StepReturn, Open: true},
		"while worker-1 was being uncordoned":             {At: cluster.StepUncordon, Cordoned: true},
		"while worker-1 was being sent back to its old":   {At: cluster.StepRollback, Open: true},
		"waiting for etcd to be healthy with worker-1":    {At: cluster.StepEtcd, Open: true},
		"machine configuration of worker-1 was being":     {At: cluster.StepInstallImage, Open: true},
		"waiting for the installer on worker-1 to end":    {At: cluster.StepInstaller, Open: true},
		"waiting for worker-1 to be Ready in Kubernetes":  {At: cluster.StepReady, Open: true},
		"waiting for the gates of worker-1":               {At: cluster.StepGates},
		"while worker-1 was being drained; last seen: db": {At: cluster.StepDrain, Cordoned: true},
	} {
		left.Step, left.Ended = step, context.Canceled

		err := error(&say.WaitError{What: "its pods to leave", Cause: context.Canceled})
		if left.At == cluster.StepDrain {
			err = &say.WaitError{What: "its pods to leave", Seen: "db", Cause: context.Canceled}
		}

		failed := left.Failure(err)
		if !strings.Contains(failed.Seen, want) || !strings.HasPrefix(failed.Summary, "The upgrade was cancelled") {
			t.Errorf("%s: %q, want %q", failed.Summary, failed.Seen, want)
		}

		if continues := left.Open || left.Cordoned; strings.Contains(failed.Remedy, "it continues with this node") != continues {
			t.Errorf("%s: %q", want, failed.Remedy)
		}
	}
}
