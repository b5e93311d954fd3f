// SPDX-License-Identifier: MPL-2.0

package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// LoadFaults reads a fault script:
//
//	faults:
//	  - node: worker-0        # a machine's name, or "*" for each of them
//	    step: pull
//	    effect: fail
//	    times: 2              # how often on each node; default 1, 0 = always
//	    message: "registry says no"   # instead of the usual text
//	  - {node: cp-1, step: boot, effect: fallback}
//	  - {node: worker-1, step: install, effect: unreachable, for: 3m}
//	  - {node: cp-0, step: static-pod, effect: never-ready, component: kube-scheduler}
//	  - {node: cp-2, step: boot, effect: etcd-down, talos: 1.13.4, times: 0}
//
// The steps and what can happen at each:
//
//	observe         unreachable
//	pull            fail, not-found, stall, connection-lost, unreachable
//	install         fail, fail-armed, refuse, not-started, connection-lost, connection-lost-early, unreachable
//	reboot          fail, connection-lost
//	rollback        fail, connection-lost
//	legacy-upgrade  fail, connection-lost
//	boot            fallback, never-returns, unreachable, not-ready, etcd-down, stuck, flap
//	kubelet         not-ready
//	component-pull  fail, not-found, stall
//	apply           fail, busy, connection-lost, overwritten
//	static-pod      never-ready, crash-loop, flap
//	kubelet-restart stays-down, not-ready
//	api-server      flap
//	drain           blocked-by-budget
//	patch           connection-lost
//	etcd-snapshot   fail, cut, connection-lost, corrupt, stall
//	etcd            alarm-nospace, alarm-corrupt, lagging, big, no-leader, silent, learner, reports
//	disk            full, pressure, unreadable, stall
//	clock           unsynced, disabled, unreadable
//	security-state  unreadable
//
// The Effect constants say what each of them does. "for" is simulated time in
// Go's notation and belongs to stall, unreachable, never-returns, not-ready,
// etcd-down, stuck, flap, never-ready, crash-loop and stays-down, and to everything of etcd, disk,
// clock and security-state; without it they last until the script is replaced,
// but for the flap of static-pod and of api-server, which
// lasts 20 seconds. "component" narrows component-pull, apply and static-pod to
// one of kubelet, kube-apiserver, kube-controller-manager, kube-scheduler and
// kube-proxy; an apply is of those whose image it changes, installer among them.
// "talos" narrows a boot to those of a system of that version: with "times: 0"
// it is one that does not work on the machine, however often it boots.
// Faults that never ran out of times strike again; earlier lines win over later ones. What is of etcd,
// disk, clock and security-state is in force, over boots too, as soon as the
// script is: once, whatever "times" says, and all lines of a machine together.
//
// Errors name the line and the field. An empty document is an empty script.
func LoadFaults(document []byte) ([]Fault, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, fmt.Errorf("fault script: %w", err)
	}

	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, nil
	}

	list, err := faultList(root.Content[0])
	if err != nil {
		return nil, fmt.Errorf("fault script: %w", err)
	}

	faults := make([]Fault, 0, len(list))

	for _, entry := range list {
		fault, err := readFault(entry)
		if err != nil {
			return nil, fmt.Errorf("fault script: %w", err)
		}

		faults = append(faults, fault)
	}

	return faults, nil
}

func faultList(top *yaml.Node) ([]*yaml.Node, error) {
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want a mapping with the key faults", top.Line)
	}

	var list []*yaml.Node

	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]

		if key.Value != "faults" {
			return nil, fmt.Errorf("line %d: unknown field %q, want faults", key.Line, key.Value)
		}

		if value.Tag == "!!null" {
			continue
		}

		if value.Kind != yaml.SequenceNode {
			return nil, fmt.Errorf("line %d: field faults: want a list", value.Line)
		}

		list = value.Content
	}

	return list, nil
}

func readFault(entry *yaml.Node) (Fault, error) {
	fault := Fault{Times: 1}

	if entry.Kind != yaml.MappingNode {
		return fault, fmt.Errorf("line %d: want a mapping with node, step and effect", entry.Line)
	}

	seen := map[string]bool{}

	for i := 0; i+1 < len(entry.Content); i += 2 {
		key, value := entry.Content[i], entry.Content[i+1]

		if seen[key.Value] {
			return fault, fmt.Errorf("line %d: field %s given twice", key.Line, key.Value)
		}

		seen[key.Value] = true

		if err := fault.set(key.Value, value); err != nil {
			return fault, fmt.Errorf("line %d: field %s: %w", value.Line, key.Value, err)
		}
	}

	if err := fault.validate(); err != nil {
		return fault, fmt.Errorf("line %d: %w", entry.Line, err)
	}

	return fault, nil
}

func (f *Fault) set(field string, value *yaml.Node) error {
	switch field {
	case "node":
		return value.Decode(&f.Node)
	case "step":
		return value.Decode(&f.Step)
	case "effect":
		return value.Decode(&f.Effect)
	case "times":
		return value.Decode(&f.Times)
	case "message":
		return value.Decode(&f.Message)
	case "component":
		return value.Decode(&f.Component)
	case "talos":
		return value.Decode(&f.Talos)
	case "for":
		length, err := time.ParseDuration(value.Value)
		f.For = length

		return err
	default:
		return errors.New("unknown field, want node, step, effect, times, for, message, component or talos")
	}
}

func (f Fault) validate() error {
	effects := effectsOf(f.Step)
	lasting := []Effect{
		EffectStall, EffectUnreachable, EffectNeverReturns, EffectNotReady, EffectEtcdDown, EffectStuck, EffectFlap,
		EffectNeverReady, EffectCrashLoop, EffectStaysDown,
	}
	components := componentsOf(f.Step)

	switch {
	case f.Node == "":
		return errors.New("field node: missing, want a machine's name or \"*\"")
	case len(effects) == 0:
		return fmt.Errorf("field step: got %q, want one of %s", f.Step, join(steps()))
	case !slices.Contains(effects, f.Effect):
		return fmt.Errorf("field effect: got %q, step %s can have %s", f.Effect, f.Step, join(effects))
	case f.Component != "" && len(components) == 0:
		return fmt.Errorf("field component: step %s is of no component", f.Step)
	case f.Component != "" && !slices.Contains(components, f.Component):
		return fmt.Errorf("field component: got %q, step %s can have %s", f.Component, f.Step, join(components))
	case f.Times < 0:
		return fmt.Errorf("field times: got %d, want 0 (always) or more", f.Times)
	case f.For < 0:
		return fmt.Errorf("field for: got %s, want a positive duration", f.For)
	case f.For > 0 && !slices.Contains(troubleSteps(), f.Step) && !slices.Contains(lasting, f.Effect):
		return fmt.Errorf("field for: effect %s has no duration, only %s have", f.Effect, join(lasting))
	default:
		return f.validateTalos()
	}
}

func (f Fault) validateTalos() error {
	if f.Talos == "" {
		return nil
	}

	if f.Step != StepBoot {
		return fmt.Errorf("field talos: step %s is of no version, only %s is", f.Step, StepBoot)
	}

	if _, err := parseVersion(f.Talos); err != nil {
		return fmt.Errorf("field talos: got %q: %w", f.Talos, err)
	}

	return nil
}

func join[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = string(item)
	}

	return strings.Join(texts, ", ")
}
