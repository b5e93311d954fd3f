// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// act begins what is asked for, or goes on with it.
func (v *vitistack) act(ctx context.Context, notes map[string]string) {
	habits := v.options.Habits

	for _, product := range halves() {
		if notes[key(product, "target")] == "" {
			delete(v.gaveUp, product)
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
	case v.job.half == version.Talos:
		v.block(notes)
		v.upgradeMachines()
	default:
		v.rollKubernetes(ctx)
	}
}

// begin looks for something to do.
func (v *vitistack) begin(notes map[string]string) {
	asked := false

	for _, product := range halves() {
		target := notes[key(product, "target")]
		if target == "" {
			continue
		}

		asked = true

		if v.gaveUp[product] != target {
			v.start(product, target, notes)
		}

		if v.job != nil {
			return
		}
	}

	if talos := v.current(version.Talos); !asked && v.options.Habits.Undoes && !talos.IsZero() {
		v.job = &job{half: version.Talos, target: talos, undo: true}
	}
}

// start takes up a target, or says why not.
func (v *vitistack) start(product version.Product, given string, notes map[string]string) {
	status := notes[key(product, "status")]

	target, err := version.Parse(given)
	if err != nil {
		v.fail(product, given, fmt.Errorf("invalid target version %q", given), "")

		return
	}

	if status == statusCompleted && plain(notes[key(product, "current")]) == target.String() {
		// It was done before. A forgetful operator has left the target.
		if !v.options.Habits.Forgetful {
			v.complete(product, target)
		}

		return
	}

	if talos := lowestTalos(v.options.World); product == version.Kubernetes && !supports(talos, target) {
		v.blocked(product, fmt.Sprintf("Talos %s does not support K8s %s. Upgrade Talos first.", v.spell(talos), v.spell(target)))

		return
	}

	if err := v.check(product, target); err != nil {
		v.fail(product, given, err, "")

		return
	}

	if v.options.Habits.Lies {
		v.complete(product, target)

		return
	}

	v.job = &job{half: product, target: target}
	if product == version.Kubernetes {
		v.job.roll = &roll{hands: v.hands, to: target.String()}
	}

	message := fmt.Sprintf("Starting %s upgrade: %s → %s", product.Name(), v.spell(v.running(product)), v.spell(target))

	if !v.options.Habits.StaleCompleted || status != statusCompleted {
		v.say(product, "status", statusInProgress)
	}

	v.say(product, "message", message)
	v.say(product, "progress", v.progress())
	v.unsaid.annotations[keyFailedNodes] = nil
	v.standing(product, "Upgrading"+product.Name(), "True", "InProgress", message)
	v.unsaid.secret = map[string]string{
		secretBusy: "true", secretType: string(product), secretTarget: v.spell(target), secretState: stateOf(product, v.spell(target), "upgrading"),
	}
}

// stateOf is how far an upgrade is, as the Secret has it.
func stateOf(product version.Product, target, phase string) string {
	return fmt.Sprintf(`{"upgradeType":%q,"targetVersion":%q,"phase":%q}`, product, target, phase)
}

// running is what the operator takes the cluster to run, or else what it runs.
func (v *vitistack) running(product version.Product) version.Version {
	switch current := v.current(product); {
	case !current.IsZero():
		return current
	case product == version.Talos:
		return lowestTalos(v.options.World)
	default:
		return lowestKubernetes(v.options.World)
	}
}

// check is why a target cannot be taken up, in the operator's words.
func (v *vitistack) check(product version.Product, target version.Version) error {
	if product == version.Kubernetes {
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
	product := v.job.half
	target := notes[key(product, "target")]

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
		v.say(product, "status", statusIdle)
		v.say(product, "message", product.Name()+" upgrade cancelled")
		v.unsay(product, "progress")
		v.standing(product, phaseReady, "False", "Cancelled", product.Name()+" upgrade cancelled")
	}

	return false
}

// block says that Kubernetes has to wait for Talos.
func (v *vitistack) block(notes map[string]string) {
	const message = "Waiting for Talos upgrade to complete"

	if notes[key(version.Kubernetes, "target")] == "" || notes[key(version.Kubernetes, "message")] == message {
		return
	}

	v.say(version.Kubernetes, "status", statusBlocked)
	v.say(version.Kubernetes, "message", message)
	v.unsaid.conditions["KubernetesUpgrade"] = condition(v.options.Clock.Now(), "KubernetesUpgrade", "False", "Blocked", message)
}

func (v *vitistack) blocked(product version.Product, message string) {
	v.say(product, "status", statusBlocked)
	v.say(product, "message", message)
	v.standing(product, phaseReady, "False", "Blocked", message)
}

// complete says that a half is done.
func (v *vitistack) complete(product version.Product, target version.Version) {
	message := fmt.Sprintf("%s upgrade completed: now running %s", product.Name(), v.spell(target))

	v.say(product, "current", v.spell(target))
	v.say(product, "status", statusCompleted)
	v.say(product, "message", message)
	v.unsay(product, "available")
	v.unsay(product, "progress")

	if !v.options.Habits.Forgetful {
		v.unsay(product, "target")
	}

	v.unsaid.annotations[keyFailedNodes] = nil
	v.standing(product, phaseReady, "False", "Completed", message)

	field, spelled := secretTalos, target.String()
	if product == version.Kubernetes {
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
	v.unsaid.secret[secretState] = stateOf(product, v.spell(target), statusCompleted)
	v.job = nil
}

// fail says that a half has failed. The target stays, and so does that it is at work
// on what it began, of which only the state tells that it is over.
func (v *vitistack) fail(product version.Product, given string, why error, node string) {
	message := fmt.Sprintf("%s upgrade failed: %s", product.Name(), why)

	v.say(product, "status", statusFailed)
	v.say(product, "message", message)
	v.unsaid.annotations[keyFailedNodes] = nil

	if node != "" {
		v.unsaid.annotations[keyFailedNodes] = node
	}

	v.standing(product, phaseFailed, "False", "Failed", message)
	v.unsaid.secret = map[string]string{secretState: stateOf(product, given, statusFailed)}
	v.job, v.hands.at = nil, nil

	if v.options.Habits.StaysFailed {
		v.gaveUp[product] = given
	}
}
