// SPDX-License-Identifier: MPL-2.0

package permit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// what returns what is asked for, in words for people.
func (w World) what(a Ask) string {
	switch {
	case a.Cordons:
		return "to cordon " + w.Step.Node
	case a.Stage == rule.Component:
		return fmt.Sprintf("to restart %s on %s", w.Step.Component, w.Step.Node)
	case a.Stage == rule.Install:
		return "to install on " + w.Step.Node
	case a.Stage == rule.SendBack:
		return "to send " + w.Step.Node + " back"
	default:
		return "to reboot " + w.Step.Node
	}
}

// Line returns why something was permitted: how old the facts behind it are, how many steps of the run came
// before it, when the lease was renewed, and which other nodes of the run are out of service.
func (w World) Line(a Ask, renewed time.Time) string {
	ages := []string{"nodes " + age(w.Now.At, w.Seen)}
	for _, date := range w.Dates {
		ages = append(ages, date.What+" "+age(w.Now.At, date.Got))
	}

	others := "none"
	if len(w.Others) > 0 {
		others = strings.Join(slices.Sorted(maps.Keys(w.Others)), ", ")
	}

	return fmt.Sprintf("permitted %s; ages of the facts: %s; steps of this run before it: %d, %d when the look began; lease renewed %s ago; other nodes under way: %s",
		w.what(a), strings.Join(ages, ", "), w.Now.Steps.All, w.Looked.All, age(w.Now.At, renewed), others)
}

func age(now, then time.Time) string { return now.Sub(then).Round(time.Millisecond).String() }
