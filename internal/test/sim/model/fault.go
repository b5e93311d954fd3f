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

// Step is where in a node's life a fault strikes.
type Step string

// Effect is what a fault does there.
type Effect string

// The steps.
const (
	// StepObserve is any question to the machine: version, boot ID, etcd.
	StepObserve Step = "observe"
	// StepPull is the download of an image, by either API.
	StepPull Step = "pull"
	// StepInstall is the run of the installer, by either API.
	StepInstall Step = "install"
	// StepReboot is the call that asks for a reboot.
	StepReboot Step = "reboot"
	// StepRollback is the call that sends a machine back to its other system.
	StepRollback Step = "rollback"
	// StepLegacyUpgrade is the call MachineService.Upgrade.
	StepLegacyUpgrade Step = "legacy-upgrade"
	// StepBoot is the machine's start after a reboot.
	StepBoot Step = "boot"
	// StepKubelet is what the kubelet reports about the node, from the moment that the script is in force.
	StepKubelet Step = "kubelet"
	// StepComponentPull is the download of an image of Kubernetes, for a client
	// or because a component is to start from it.
	StepComponentPull Step = "component-pull"
	// StepApply is a call that applies a machine configuration.
	StepApply Step = "apply"
	// StepStaticPod is the start of a static pod whose configuration changed.
	StepStaticPod Step = "static-pod"
	// StepKubeletRestart is the start of a kubelet whose configuration changed.
	StepKubeletRestart Step = "kubelet-restart"
	// StepAPIServer is each time that a machine's kube-apiserver becomes ready.
	StepAPIServer Step = "api-server"
	// StepDrain is the eviction of the node's pods.
	StepDrain Step = "drain"
	// StepPatch is a Kubernetes request that changes something.
	StepPatch Step = "patch"
	// StepEtcdSnapshot is a call that asks for a snapshot of etcd.
	StepEtcdSnapshot Step = "etcd-snapshot"

	// StepEtcd is the member of a control plane, StepDisk the file system below /var, StepClock the clock of a
	// machine, and StepSecurityState what it says about its boot. Like StepKubelet they are in force as soon as the
	// script is; see [trouble].
	StepEtcd          Step = "etcd"
	StepDisk          Step = "disk"
	StepClock         Step = "clock"
	StepSecurityState Step = "security-state"
)

// The effects.
const (
	// EffectFail makes the step end with an error: a pull with what a broken registry says, an installer with exit
	// code 1 (7 from Talos 1.14 on) and nothing written, a call with an internal error and nothing done.
	EffectFail Effect = "fail"
	// EffectFailArmed makes the installer exit non-zero after it has already switched the bootloader.
	EffectFailArmed Effect = "fail-armed"
	// EffectRefuse makes the installer exit before it has written anything: with code 4 from Talos 1.14 on, as for
	// a host that it does not support, and with 1 before.
	EffectRefuse Effect = "refuse"
	// EffectNotStarted makes the install fail before the installer's container runs.
	EffectNotStarted Effect = "not-started"
	// EffectNotFound makes a pull answer that the image does not exist.
	EffectNotFound Effect = "not-found"
	// EffectStall keeps a pull or a snapshot of etcd from making progress, and a disk from reporting its size, for
	// the fault's duration or until the script is replaced.
	EffectStall Effect = "stall"
	// EffectConnectionLost breaks the caller's connection, but the step takes effect.
	EffectConnectionLost Effect = "connection-lost"
	// EffectConnectionLostEarly breaks the caller's connection as soon as the
	// installer has started; the installer runs on.
	EffectConnectionLostEarly Effect = "connection-lost-early"
	// EffectUnreachable takes the machine's API away while the machine runs on: with observe and boot at once,
	// otherwise a second after the step. It comes back after the fault's duration, or when the script is replaced.
	EffectUnreachable Effect = "unreachable"
	// EffectPowerLost cuts the power in the middle of an install and restores it at once. What was unpacked on the
	// disk in the half minute before lacks files from then on, however often it is downloaded again: the container
	// of the installer holds it.
	EffectPowerLost Effect = "power-lost"
	// EffectFallback makes the first boot of a newly installed system fail: the machine reverts its bootloader and
	// starts the old system again. It does not strike boots without a pending upgrade.
	EffectFallback Effect = "fallback"
	// EffectNeverReturns makes the machine hang at its start, for the fault's duration or until the script is
	// replaced by one without this fault.
	EffectNeverReturns Effect = "never-returns"
	// EffectMaintenance makes the machine start without its configuration, as if it did not find the partition with
	// it, for the fault's duration or until the script is replaced by one without this fault. Its API is that of
	// the maintenance mode, with a certificate of its own.
	EffectMaintenance Effect = "maintenance"
	// EffectNotReady makes the kubelet report that its node is not ready; such a kubelet confirms no deletion of a
	// pod either. With kubelet it does so at once if the node is ready then, with boot instead of becoming ready
	// after the start, with kubelet-restart once the new kubelet has registered its version. It ends with the
	// machine's next boot, with the fault's duration, or when the script is replaced by one without this fault.
	EffectNotReady Effect = "not-ready"
	// EffectEtcdDown keeps the member of a control plane from coming up, and
	// EffectStuck a machine in its boot sequence, with an API that answers and
	// nothing else started. Both end with the machine's next boot, with the fault's
	// duration, or when the script is replaced by one without this fault.
	EffectEtcdDown Effect = "etcd-down"
	EffectStuck    Effect = "stuck"
	// EffectFlap makes a node that has become ready after its start not ready once more, [FlapAfter] later, for the
	// fault's duration or until the script is replaced by one without this fault. With static-pod and api-server it
	// takes the pod away, [ComponentFlapAfter] after it became ready, for the fault's duration or 20 seconds.
	EffectFlap Effect = "flap"
	// EffectBusy makes a machine say that it is applying another configuration.
	EffectBusy Effect = "busy"
	// EffectOverwritten makes somebody else write a machine's configuration as it was before, with one more
	// comment, as soon as the new one is in force.
	EffectOverwritten Effect = "overwritten"
	// EffectNeverReady makes a static pod run without becoming ready, EffectCrashLoop makes its container end as
	// often as it starts, and EffectStaysDown keeps a kubelet from coming up: for the fault's duration or until the
	// script is replaced by one without this fault, across boots too.
	EffectNeverReady Effect = "never-ready"
	EffectCrashLoop  Effect = "crash-loop"
	EffectStaysDown  Effect = "stays-down"
	// EffectBlockedByBudget makes a PodDisruptionBudget that allows no disruption cover a pod on the node. The
	// Kubernetes face carries it out.
	EffectBlockedByBudget Effect = "blocked-by-budget"
)

// The effects on a snapshot of etcd, besides fail, stall and connection-lost, which breaks the stream in its
// middle.
const (
	// EffectCut ends the stream in its middle as if that were all.
	EffectCut Effect = "cut"
	// EffectCorrupt sends bytes other than those that were hashed.
	EffectCorrupt Effect = "corrupt"
)

// The effects that are in force as long as their script is: on etcd, on the disk, on the clock, and unreadable on
// the last two and on the security state.
const (
	// EffectAlarmNoSpace and EffectAlarmCorrupt are alarms of the member. The database takes writes all the same,
	// unlike that of a real member.
	EffectAlarmNoSpace Effect = "alarm-nospace"
	EffectAlarmCorrupt Effect = "alarm-corrupt"
	// EffectLagging keeps the member [Lag] entries behind the others.
	EffectLagging Effect = "lagging"
	// EffectBig is a database of [BigDatabase] bytes.
	EffectBig Effect = "big"
	// EffectNoLeader is a member that sees no leader, while the others go on.
	EffectNoLeader Effect = "no-leader"
	// EffectSilent makes every question to the member fail.
	EffectSilent Effect = "silent"
	// EffectLearner is a member that is listed as a learner, has no vote, and answers only for its own status. The
	// last voter keeps its vote.
	EffectLearner Effect = "learner"
	// EffectReports makes the status of the member list an error.
	EffectReports Effect = "reports"
	// EffectFull leaves [FullDisk] bytes free for images, which are below /var or on a volume of their own. What is
	// pulled still fits.
	EffectFull Effect = "full"
	// EffectPressure makes the kubelet report DiskPressure.
	EffectPressure Effect = "pressure"
	// EffectUnreadable makes the machine not report the value.
	EffectUnreadable Effect = "unreadable"
	// EffectUnsynced is a clock without a time server: the machine is not ready, as with Talos.
	EffectUnsynced Effect = "unsynced"
	// EffectDisabled is a clock that is not meant to be synchronised.
	EffectDisabled Effect = "disabled"
)

// FlapAfter is how long, in simulated time, a node is ready before
// [EffectFlap] strikes.
const FlapAfter = 31037 * time.Millisecond

// ComponentFlapAfter is how long, in simulated time, a static pod is ready before
// [EffectFlap] takes it away.
const ComponentFlapAfter = 7037 * time.Millisecond

// AnyNode in a fault means every machine, each counted by itself.
const AnyNode = "*"

// Fault is one line of a fault script.
type Fault struct {
	// Node is a machine's name or [AnyNode].
	Node string
	// Step and Effect are one of the pairs that [LoadFaults] documents.
	Step   Step
	Effect Effect
	// Component narrows the steps of Kubernetes components to one of them; empty means any.
	Component string
	// Talos narrows a fault of a boot to a version, with or without v, of the system that boots; empty means any.
	Talos string
	// Times is how often it strikes on each node; 0 means always.
	Times int
	// For is how long, in simulated time, an effect with a duration lasts;
	// 0 means until the script is replaced.
	For time.Duration
	// Message replaces the effect's usual text.
	Message string
}

func (f Fault) hits(node string, step Step) bool {
	return f.Step == step && (f.Node == AnyNode || f.Node == node)
}

// of reports whether the fault concerns one of the components.
func (f Fault) of(components []string) bool {
	return f.Component == "" || slices.Contains(components, f.Component)
}

// on reports whether the fault concerns the boot of a version.
func (f Fault) on(talos string) bool {
	return f.Talos == "" || strings.TrimPrefix(f.Talos, "v") == talos
}

// componentsOf lists which components a step can be narrowed to.
func componentsOf(step Step) []string {
	return map[Step][]string{
		StepComponentPull: componentNames(),
		StepApply:         append(componentNames(), InstallerName),
		StepStaticPod:     staticNames(),
	}[step]
}

// effectsOf lists which effects a step can have.
func effectsOf(step Step) []Effect {
	return map[Step][]Effect{
		StepObserve: {EffectUnreachable},
		StepPull:    {EffectFail, EffectNotFound, EffectStall, EffectConnectionLost, EffectUnreachable},
		StepInstall: {
			EffectFail, EffectFailArmed, EffectRefuse, EffectNotStarted, EffectConnectionLost, EffectConnectionLostEarly, EffectUnreachable,
			EffectPowerLost,
		},
		StepReboot:        {EffectFail, EffectConnectionLost},
		StepRollback:      {EffectFail, EffectConnectionLost},
		StepLegacyUpgrade: {EffectFail, EffectConnectionLost},
		StepBoot:          {EffectFallback, EffectNeverReturns, EffectMaintenance, EffectUnreachable, EffectNotReady, EffectEtcdDown, EffectStuck, EffectFlap},
		StepKubelet:       {EffectNotReady},
		StepDrain:         {EffectBlockedByBudget},
		StepPatch:         {EffectConnectionLost},

		StepComponentPull:  {EffectFail, EffectNotFound, EffectStall},
		StepApply:          {EffectFail, EffectBusy, EffectConnectionLost, EffectOverwritten},
		StepStaticPod:      {EffectNeverReady, EffectCrashLoop, EffectFlap},
		StepKubeletRestart: {EffectStaysDown, EffectNotReady},
		StepAPIServer:      {EffectFlap},

		StepEtcdSnapshot: {EffectFail, EffectCut, EffectConnectionLost, EffectCorrupt, EffectStall},
		StepEtcd: {
			EffectAlarmNoSpace, EffectAlarmCorrupt, EffectLagging, EffectBig, EffectNoLeader, EffectSilent, EffectLearner, EffectReports,
		},
		StepDisk:          {EffectFull, EffectPressure, EffectUnreadable, EffectStall},
		StepClock:         {EffectUnsynced, EffectDisabled, EffectUnreadable},
		StepSecurityState: {EffectUnreadable},
	}[step]
}

// steps returns the steps in the order in which a node goes through them.
func steps() []Step {
	return []Step{
		StepObserve, StepPull, StepInstall, StepReboot, StepRollback, StepLegacyUpgrade, StepBoot, StepKubelet,
		StepComponentPull, StepApply, StepStaticPod, StepKubeletRestart, StepAPIServer, StepDrain, StepPatch,
		StepEtcdSnapshot, StepEtcd, StepDisk, StepClock, StepSecurityState,
	}
}

// Faults lists every fault that a script can have: one for each step and effect, in the order in which a node goes
// through the steps, with the other fields empty. A sweep over it includes new faults as well.
func Faults() []Fault {
	var all []Fault

	for _, step := range steps() {
		for _, effect := range effectsOf(step) {
			all = append(all, Fault{Step: step, Effect: effect})
		}
	}

	return all
}

// Lasting reports whether the fault may have a duration.
func (f Fault) Lasting() bool {
	timed := Fault{Node: AnyNode, Step: f.Step, Effect: f.Effect, For: time.Second}

	return timed.validate() == nil
}

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
//	install         fail, fail-armed, refuse, not-started, connection-lost, connection-lost-early, unreachable, power-lost
//	reboot          fail, connection-lost
//	rollback        fail, connection-lost
//	legacy-upgrade  fail, connection-lost
//	boot            fallback, never-returns, maintenance, unreachable, not-ready, etcd-down, stuck, flap
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
// The Effect constants say what each of them does. "for" is simulated time in Go's notation. It may be given for
// stall, unreachable, never-returns, maintenance, not-ready, etcd-down, stuck, flap, never-ready, crash-loop and
// stays-down, and for everything of etcd, disk, clock and security-state. Without it they last until the script is
// replaced, except the flap of static-pod and of api-server, which lasts 20 seconds. "component" narrows
// component-pull, apply and static-pod to one of kubelet, kube-apiserver, kube-controller-manager, kube-scheduler
// and kube-proxy; an apply concerns those whose image it changes, including installer. "talos" narrows a boot to
// systems of that version: with "times: 0" such a system does not work on the machine, however often it boots. A
// fault strikes until its times are used up; earlier lines win over later ones. Faults of etcd, disk, clock and
// security-state are in force as soon as the script is, across boots too: once, whatever "times" says, and all
// lines of a machine together.
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
		EffectStall, EffectUnreachable, EffectNeverReturns, EffectMaintenance, EffectNotReady, EffectEtcdDown, EffectStuck, EffectFlap,
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
