// SPDX-License-Identifier: MPL-2.0

package model

import "time"

// Faults lists everything that a script can say: one fault for each step and
// effect, in the order in which a node goes through the steps, with nothing else
// filled in. Whoever sweeps over it has a new fault swept as well.
func Faults() []Fault {
	var all []Fault

	for _, step := range steps() {
		for _, effect := range effectsOf(step) {
			all = append(all, Fault{Step: step, Effect: effect})
		}
	}

	return all
}

// Lasting tells whether a duration means something to the fault.
func (f Fault) Lasting() bool {
	timed := Fault{Node: AnyNode, Step: f.Step, Effect: f.Effect, For: time.Second}

	return timed.validate() == nil
}
