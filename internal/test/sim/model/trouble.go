// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// trouble is what is wrong with a machine while a line of the script is in force,
// rather than at one moment of its life: with its etcd member, its disk, its
// clock, or what it tells of them. A boot does not cure it.
//
// In the history each is two events of [history.KindFault] at its machine: one
// with the details "step" and "effect" (and "info") when it begins, and one with
// the same step and effect and "outcome"="over" when it ends. A script that is
// replaced by one that says the same of the machine ends nothing, and adds no
// event. Members that are troubled are those between the two events whose step is
// "etcd".
type trouble struct {
	step   Step
	effect Effect
}

// troubleSteps are the steps that are in force with their script.
func troubleSteps() []Step { return []Step{StepEtcd, StepDisk, StepClock, StepSecurityState} }

func (n *node) suffers(step Step, effect Effect) bool {
	_, found := n.troubles[trouble{step, effect}]

	return found
}

// strikeTroubles brings the troubles of a machine in line with the script. The
// lock is held.
func (w *World) strikeTroubles(n *node) {
	for _, struck := range n.sufferings() {
		if n.troubles[struck].IsZero() && !w.script.has(n.name, struck.step, struck.effect) {
			w.relieve(n, struck)
		}
	}

	begun := map[trouble]bool{}

	for line, fault := range w.script.faults {
		struck := trouble{fault.Step, fault.Effect}
		if !slices.Contains(troubleSteps(), fault.Step) || !fault.hits(n.name, fault.Step) || fault.Step == StepEtcd && n.etcd == nil {
			continue
		}

		w.script.used[strike{line, n.name}]++

		if !begun[struck] {
			begun[struck] = true
			w.trouble(n, fault, line)
		}
	}
}

// trouble begins one, or lets one that is there last as the line says. Those that
// begin together do not end in the same instant, or no run would be like another.
func (w *World) trouble(n *node, fault Fault, line int) {
	const apart, machine = 131 * time.Nanosecond, 1300 * time.Nanosecond

	struck := trouble{fault.Step, fault.Effect}
	goesOn := n.suffers(fault.Step, fault.Effect)

	var ends time.Time

	if fault.For > 0 {
		length := fault.For + time.Duration(n.index+1)*machine + time.Duration(line)*apart
		ends = w.clock.Now().Add(length)

		w.later(w.life, length, func() {
			if end, found := n.troubles[struck]; found && end.Equal(ends) && !n.removed {
				w.relieve(n, struck)
			}
		})
	}

	n.troubles[struck] = ends

	if goesOn {
		return
	}

	w.record(n.name, history.KindFault, map[string]string{
		"step": string(fault.Step), "effect": string(fault.Effect), "info": fault.Message,
	})
	w.feel(n, struck)
}

// relieve ends one.
func (w *World) relieve(n *node, struck trouble) {
	delete(n.troubles, struck)

	w.record(n.name, history.KindFault, map[string]string{
		"step": string(struck.step), "effect": string(struck.effect), "outcome": "over",
	})
	w.feel(n, struck)
}

// feel lets a machine show that a trouble began or ended.
func (w *World) feel(n *node, struck trouble) {
	w.touch(n)

	switch {
	case struck.step == StepClock:
		w.confirmSoon(n)
	case struck == trouble{StepDisk, EffectStall}:
		w.stallDisk(n)
	case struck == trouble{StepEtcd, EffectLearner} && n.etcd != nil:
		w.revote(n)
	}
}

// stallDisk lets those who ask for the disk of a machine wait, or have an answer.
func (w *World) stallDisk(n *node) {
	switch {
	case n.suffers(StepDisk, EffectStall):
		n.stalled = make(chan struct{})
	case n.stalled != nil:
		close(n.stalled)
		n.stalled = nil
	}
}

// sufferings lists the troubles of a machine in an order of their own.
func (n *node) sufferings() []trouble {
	return slices.SortedFunc(maps.Keys(n.troubles), func(a, b trouble) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.effect, b.effect))
	})
}
