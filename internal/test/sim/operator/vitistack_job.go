// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// act begins what is asked for, or goes on with it.
func (v *vitistack) act(ctx context.Context, notes map[string]string) {
	habits := v.options.Habits

	for _, half := range halves() {
		if notes[key(half, "target")] == "" {
			delete(v.gaveUp, half)
		}
	}

	if habits.Deaf {
		return
	}

	// What begins is said before anything is done, at the next pass.
	if v.job == nil {
		v.begin(notes)

		return
	}

	switch {
	case habits.Stalls:
	case v.job.undo:
		v.upgradeMachines()
	case !v.wanted(notes):
	case v.job.half == cluster.HalfTalos:
		v.block(notes)
		v.upgradeMachines()
	default:
		v.rollKubernetes(ctx)
	}
}

// begin looks for something to do.
func (v *vitistack) begin(notes map[string]string) {
	asked := false

	for _, half := range halves() {
		target := notes[key(half, "target")]
		if target == "" {
			continue
		}

		asked = true

		if v.gaveUp[half] != target {
			v.start(half, target, notes)
		}

		if v.job != nil {
			return
		}
	}

	if talos := v.current(cluster.HalfTalos); !asked && v.options.Habits.Undoes && !talos.IsZero() {
		v.job = &job{half: cluster.HalfTalos, target: talos, undo: true}
	}
}

// start takes up a target, or says why not.
func (v *vitistack) start(half cluster.Half, given string, notes map[string]string) {
	status := notes[key(half, "status")]

	target, err := version.Parse(given)
	if err != nil {
		v.fail(half, given, fmt.Errorf("invalid target version %q", given), "")

		return
	}

	if status == statusCompleted && plain(notes[key(half, "current")]) == target.String() {
		// It was done before. A forgetful operator has left the target.
		if !v.options.Habits.Forgetful {
			v.complete(half, target)
		}

		return
	}

	if talos := lowestTalos(v.options.World); half == cluster.HalfKubernetes && !supports(talos, target) {
		v.blocked(half, fmt.Sprintf("Talos %s does not support K8s %s. Upgrade Talos first.", v.spell(talos), v.spell(target)))

		return
	}

	if err := v.check(half, target); err != nil {
		v.fail(half, given, err, "")

		return
	}

	if v.options.Habits.Lies {
		v.complete(half, target)

		return
	}

	v.job = &job{half: half, target: target}
	if half == cluster.HalfKubernetes {
		v.job.roll = &roll{hands: v.hands, to: target.String()}
	}

	message := fmt.Sprintf("Starting %s upgrade: %s → %s", half.Name(), v.spell(v.running(half)), v.spell(target))

	if !v.options.Habits.StaleCompleted || status != statusCompleted {
		v.say(half, "status", statusInProgress)
	}

	v.say(half, "message", message)
	v.say(half, "progress", v.progress())
	v.unsaid.annotations[keyFailedNodes] = nil
	v.standing(half, "Upgrading"+half.Name(), "True", "InProgress", message)
	v.unsaid.secret = map[string]string{
		secretBusy: "true", secretType: string(half), secretTarget: v.spell(target), secretState: stateOf(half, v.spell(target), "upgrading"),
	}
}

// stateOf is how far an upgrade is, as the Secret has it.
func stateOf(half cluster.Half, target, phase string) string {
	return fmt.Sprintf(`{"upgradeType":%q,"targetVersion":%q,"phase":%q}`, half, target, phase)
}

// running is what the operator takes the cluster to run, or else what it runs.
func (v *vitistack) running(half cluster.Half) version.Version {
	switch current := v.current(half); {
	case !current.IsZero():
		return current
	case half == cluster.HalfTalos:
		return lowestTalos(v.options.World)
	default:
		return lowestKubernetes(v.options.World)
	}
}

// check is why a target cannot be taken up, in the operator's words.
func (v *vitistack) check(half cluster.Half, target version.Version) error {
	if half == cluster.HalfKubernetes {
		return checkKubernetes(v.options.World, target)
	}

	if talos := lowestTalos(v.options.World); target.Less(talos) {
		return fmt.Errorf("target version %s is not newer than the current version %s", v.spell(target), v.spell(talos))
	}

	return nil
}

// wanted tells whether the job is still asked for. What is not any more ends once
// no machine is on its way.
func (v *vitistack) wanted(notes map[string]string) bool {
	half := v.job.half
	target := notes[key(half, "target")]

	if plain(target) == v.job.target.String() {
		return true
	}

	if v.hands.at != nil {
		if back, err := v.hands.back(v.job.target.String()); !back && err == nil {
			return false
		}
	}

	v.hands.at, v.job = nil, nil
	v.unsaid.secret = map[string]string{secretBusy: "false", secretType: "", secretTarget: ""}

	// Another target is taken up at the next pass.
	if target == "" && !v.options.Habits.LeavesInProgress {
		v.say(half, "status", statusIdle)
		v.say(half, "message", half.Name()+" upgrade cancelled")
		v.unsay(half, "progress")
		v.standing(half, phaseReady, "False", "Cancelled", half.Name()+" upgrade cancelled")
	}

	return false
}

// block says that Kubernetes has to wait for Talos.
func (v *vitistack) block(notes map[string]string) {
	const message = "Waiting for Talos upgrade to complete"

	if notes[key(cluster.HalfKubernetes, "target")] == "" || notes[key(cluster.HalfKubernetes, "message")] == message {
		return
	}

	v.say(cluster.HalfKubernetes, "status", statusBlocked)
	v.say(cluster.HalfKubernetes, "message", message)
	v.unsaid.conditions["KubernetesUpgrade"] = condition(v.options.Clock.Now(), "KubernetesUpgrade", "False", "Blocked", message)
}

func (v *vitistack) blocked(half cluster.Half, message string) {
	v.say(half, "status", statusBlocked)
	v.say(half, "message", message)
	v.standing(half, phaseReady, "False", "Blocked", message)
}

// complete says that a half is done.
func (v *vitistack) complete(half cluster.Half, target version.Version) {
	message := fmt.Sprintf("%s upgrade completed: now running %s", half.Name(), v.spell(target))

	v.say(half, "current", v.spell(target))
	v.say(half, "status", statusCompleted)
	v.say(half, "message", message)
	v.unsay(half, "available")
	v.unsay(half, "progress")

	if !v.options.Habits.Forgetful {
		v.unsay(half, "target")
	}

	v.unsaid.annotations[keyFailedNodes] = nil
	v.standing(half, phaseReady, "False", "Completed", message)

	field, spelled := secretTalos, target.String()
	if half == cluster.HalfKubernetes {
		field = secretKubernetes
	} else {
		v.unsaid.secret[secretInstallImage] = v.options.World.Nodes()[0].Image
	}

	// The Secret keeps its spelling.
	if standing := string(v.secret.Data[field]); standing != plain(standing) {
		spelled = target.Tag()
	}

	v.unsaid.secret[field] = spelled
	v.unsaid.secret[secretBusy], v.unsaid.secret[secretType], v.unsaid.secret[secretTarget] = "false", "", ""
	v.unsaid.secret[secretState] = stateOf(half, v.spell(target), statusCompleted)
	v.job = nil
}

// fail says that a half has failed. The target stays, and so does that it is at work
// on what it began, of which only the state tells that it is over.
func (v *vitistack) fail(half cluster.Half, given string, why error, node string) {
	message := fmt.Sprintf("%s upgrade failed: %s", half.Name(), why)

	v.say(half, "status", statusFailed)
	v.say(half, "message", message)
	v.unsaid.annotations[keyFailedNodes] = nil

	if node != "" {
		v.unsaid.annotations[keyFailedNodes] = node
	}

	v.standing(half, phaseFailed, "False", "Failed", message)
	v.unsaid.secret = map[string]string{secretState: stateOf(half, given, statusFailed)}
	v.job, v.hands.at = nil, nil

	if v.options.Habits.StaysFailed {
		v.gaveUp[half] = given
	}
}
