// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"errors"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// examine looks at a run that has ended, once.
func (s *stage) examine(run *apply) {
	ended, err := run.state()
	if run.examined || run.dead() {
		return
	}

	s.checkCancel(run, ended)

	if ended.IsZero() {
		return
	}

	run.examined = true

	if err == nil {
		s.tell("run succeeded", "%s", run.name)
		s.arrived(run)

		return
	}

	s.tell("run failed", "%s: %v", run.name, err)

	var failed *engine.Failure
	if !errors.As(err, &failed) {
		s.fail("L5: %s failed without saying how: %v", run.name, err)
	}

	remedied := failed.Remedy != "" || len(failed.Findings) > 0 &&
		!slices.ContainsFunc(failed.Findings, func(f cluster.Finding) bool { return f.Remedy == "" })

	if failed.Summary == "" || failed.Seen == "" && len(failed.Findings) == 0 || failed.State == "" || !remedied {
		s.fail("L5: summary, what was seen, state or remedy is missing in the failure of %s: %+v", run.name, failed)
	}
}

// arrived ends the story unless a run that succeeded has moved every node that
// was there for it.
func (s *stage) arrived(run *apply) {
	wanted := run.request.Target.Talos
	if wanted.IsZero() || s.touched.After(run.begun) {
		return
	}

	for _, state := range s.World().Nodes() {
		if s.joined[state.Name] && s.cameUp(state.Name).After(run.begun) {
			continue
		}

		if running, err := version.Parse(state.Talos); err != nil || running.Less(wanted) {
			s.fail("success: %s succeeded, but %s runs Talos %s", run.name, state.Name, state.Talos)
		}
	}
}

// cameUp is when a machine that joined first booted, and now where it has not: until
// then nothing tells it from one that was taken away.
func (s *stage) cameUp(name string) time.Time {
	for _, boot := range s.Judge.Of(history.KindBoot) {
		if boot.Node == name {
			return time.Now().Add(time.Duration(boot.Sim*float64(time.Second)) - s.World().Now())
		}
	}

	return time.Now()
}
