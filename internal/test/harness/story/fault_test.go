// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// strike adds a fault to the script: any that the model knows, on one node, once,
// for a while, or until it is lifted.
func (s *stage) strikeNode(t *rapid.T) {
	s.pass(t)

	all := model.Faults()
	fault := all[rapid.IntRange(0, len(all)-1).Draw(t, "fault")]
	fault.Node = s.some(t, "")
	fault.Times = rapid.IntRange(0, 2).Draw(t, "times")

	if minutes := rapid.IntRange(0, 12).Draw(t, "minutes"); fault.Lasting() && minutes > 0 {
		fault.For = time.Duration(minutes)*time.Minute + 41*time.Millisecond
	}

	s.tell("fault", "%s", faultText(fault))
	s.script(append(s.faults, fault))
}

// script puts faults into force. Those with a duration may last for as long from
// then on, and a moment, even where the script is replaced.
func (s *stage) script(faults []model.Fault) {
	s.faults = faults
	s.World().SetFaults(faults)

	for _, fault := range faults {
		if end := time.Now().Add(fault.For + time.Second); end.After(s.ailing) {
			s.ailing = end
		}
	}
}

func faultText(f model.Fault) string {
	return fmt.Sprintf("%s %s %s, %d times, for %s", f.Node, f.Step, f.Effect, f.Times, f.For)
}

// lift takes the oldest fault back.
func (s *stage) lift(t *rapid.T) {
	s.pass(t)

	if len(s.faults) == 0 {
		return
	}

	s.tell("lift", "%s", faultText(s.faults[0]))
	s.script(slices.Clone(s.faults[1:]))
}
