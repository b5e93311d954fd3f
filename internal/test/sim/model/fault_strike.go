// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// script is the fault script in force, with how often each of its faults struck.
type script struct {
	faults []Fault
	used   map[strike]int
}

type strike struct {
	line int
	node string
}

func newScript(faults []Fault) *script {
	return &script{faults: slices.Clone(faults), used: map[strike]int{}}
}

// scope is what a fault may be narrowed to: the components concerned, and the version that boots.
type scope struct {
	components []string
	talos      string
}

// next returns the line of the first fault left for that node and step, with one of these effects if any are given,
// and within the scope.
func (s *script) next(node string, step Step, within scope, effects []Effect) (int, bool) {
	for line, fault := range s.faults {
		if !fault.hits(node, step) || !fault.of(within.components) || !fault.on(within.talos) || len(effects) > 0 && !slices.Contains(effects, fault.Effect) {
			continue
		}

		if fault.Times == 0 || s.used[strike{line, node}] < fault.Times {
			return line, true
		}
	}

	return 0, false
}

func (s *script) has(node string, step Step, effect Effect) bool {
	return slices.ContainsFunc(s.faults, func(f Fault) bool {
		return f.hits(node, step) && f.Effect == effect
	})
}

// SetFaults replaces the script. What lasted until the script is replaced ends, unless the new script has the same
// fault: an unreachable API answers again, a machine that never returned starts, and so end the troubles of a
// member, a disk or a clock. A stalled pull goes on in any case.
func (w *World) SetFaults(faults []Fault) {
	w.locked(func() {
		w.script = newScript(faults)

		for _, n := range w.nodes {
			w.touch(n)

			if n.silent && n.silentEnd.IsZero() && !w.script.has(n.name, n.silentStep, EffectUnreachable) {
				w.answerAgain(n)
			}

			if n.dead != nil && !w.script.has(n.name, StepBoot, n.deadOf()) {
				n.revive()
			}

			w.releaseHeld(n)

			if n.ailment.forGood() && !w.script.has(n.name, n.ailment.step, n.ailment.effect) {
				w.heal(n)
			}

			w.strikeTroubles(n)
		}

		w.strikeKubelets()

		close(w.scriptChanged)
		w.scriptChanged = make(chan struct{})
	})
}

// releaseHeld lets a machine, its member and its components come up if a fault held them back until the script was
// replaced, unless the new one has the same fault.
func (w *World) releaseHeld(n *node) {
	ended := func(held *hold, component string) bool {
		return held != nil && held.forGood && !slices.ContainsFunc(w.script.faults, func(f Fault) bool {
			return f.hits(n.name, held.step) && f.Effect == held.effect && f.of([]string{component})
		})
	}

	if ended(n.stuck, "") {
		w.unstick(n)
	}

	if n.etcd != nil && ended(n.etcd.held, "") {
		w.releaseMember(n)
	}

	if ended(n.service.held, KubeletName) {
		w.releaseKubelet(n)
	}

	for _, component := range staticNames() {
		if pod, found := n.pods[component]; found && ended(pod.held, component) {
			w.releasePod(n, component)
		}
	}
}

// CheckFaults returns an error for each machine that a script names and that the cluster does not have now; such
// lines would wait for them to join.
func (w *World) CheckFaults(faults []Fault) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	var unknown []error

	for _, fault := range faults {
		if fault.Node == AnyNode {
			continue
		}

		if _, err := w.find(fault.Node); err != nil {
			unknown = append(unknown, fmt.Errorf("fault %s %s: %w", fault.Step, fault.Effect, err))
		}
	}

	return errors.Join(unknown...)
}

// FaultsFor lists the faults of the script for a step that have not been used
// up on every node, without using them up.
func (w *World) FaultsFor(step Step) []Fault {
	w.mu.Lock()
	defer w.mu.Unlock()

	var left []Fault

	for line, fault := range w.script.faults {
		if fault.Step != step {
			continue
		}

		if fault.Node != AnyNode && fault.Times > 0 && w.script.used[strike{line, fault.Node}] >= fault.Times {
			continue
		}

		left = append(left, fault)
	}

	return left
}

// TakeFault finds a fault that strikes that node (by name) at that step now, uses it up once and records it. With
// effects it considers only these.
func (w *World) TakeFault(node string, step Step, effects ...Effect) (Fault, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.takeFault(node, step, effects...)
}

func (w *World) takeFault(node string, step Step, effects ...Effect) (Fault, bool) {
	return w.takeFaultOf(node, step, scope{}, effects...)
}

// takeComponentFault finds a fault that concerns a component.
func (w *World) takeComponentFault(node string, step Step, component string) (Fault, bool) {
	return w.takeFaultOf(node, step, scope{components: []string{component}})
}

// takeBootFault finds a fault that strikes the boot of a version.
func (w *World) takeBootFault(n *node, talos string, effects ...Effect) (Fault, bool) {
	return w.takeFaultOf(n.name, StepBoot, scope{talos: talos}, effects...)
}

func (w *World) takeFaultOf(node string, step Step, within scope, effects ...Effect) (Fault, bool) {
	line, found := w.script.next(node, step, within, effects)
	if !found {
		return Fault{}, false
	}

	w.script.used[strike{line, node}]++

	fault := w.script.faults[line]

	info := fault.Message
	if info == "" {
		info = fault.Component
	}

	w.record(node, history.KindFault, map[string]string{
		"step": string(step), "effect": string(fault.Effect), "info": info,
	})

	return fault, true
}

func (f Fault) text(usual string) string {
	if f.Message != "" {
		return f.Message
	}

	return usual
}

// lapsed reports whether a fault that has struck must not begin any more: it lasts until the script is replaced, and
// the script in force lacks it.
func (w *World) lapsed(n *node, fault Fault) bool {
	return fault.For == 0 && !w.script.has(n.name, fault.Step, fault.Effect)
}

// fallSilent takes a machine's API away after a while.
func (w *World) fallSilent(n *node, fault Fault, after time.Duration) {
	silence := func() {
		if n.silent || !n.up || w.lapsed(n, fault) {
			return
		}

		n.silent, n.silentStep, n.silentEnd = true, fault.Step, time.Time{}
		n.cut()

		if fault.For == 0 {
			return
		}

		n.silentEnd = w.clock.Now().Add(fault.For)
		end := n.silentEnd

		w.later(w.life, fault.For, func() {
			if n.silent && n.silentEnd.Equal(end) {
				w.answerAgain(n)
			}
		})
	}

	if after == 0 {
		silence()
		w.touch(n)

		return
	}

	w.later(n.life, after, func() { silence(); w.touch(n) })
}

func (w *World) answerAgain(n *node) {
	n.silent = false
	n.relink()
	w.touch(n)
}

// trouble is what is wrong with a machine while a line of the script is in force, rather than at one moment of its
// life: with its etcd member, its disk, its clock, or what it reports about them. A boot does not cure it.
//
// In the history each is two events of [history.KindFault] at its machine: one with the details "step" and "effect"
// (and "info") when it begins, and one with the same step and effect and "outcome"="over" when it ends. A script
// that is replaced by one with the same fault ends nothing, and adds no event. A member is in trouble between two
// such events whose step is "etcd".
type trouble struct {
	step   Step
	effect Effect
}

// troubleSteps returns the steps that are in force with their script.
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

// trouble begins a trouble, or makes one that exists last as long as the line says. Troubles that begin together do
// not end in the same instant, because their order would differ from run to run.
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

// relieve ends a trouble.
func (w *World) relieve(n *node, struck trouble) {
	delete(n.troubles, struck)

	w.record(n.name, history.KindFault, map[string]string{
		"step": string(struck.step), "effect": string(struck.effect), "outcome": "over",
	})
	w.feel(n, struck)
}

// feel makes a machine show that a trouble began or ended.
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

// stallDisk makes questions about the disk of a machine wait, or has them answered.
func (w *World) stallDisk(n *node) {
	switch {
	case n.suffers(StepDisk, EffectStall):
		n.stalled = make(chan struct{})
	case n.stalled != nil:
		close(n.stalled)
		n.stalled = nil
	}
}

// sufferings lists the troubles of a machine in a fixed order.
func (n *node) sufferings() []trouble {
	return slices.SortedFunc(maps.Keys(n.troubles), func(a, b trouble) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.effect, b.effect))
	})
}
