// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// What the operator writes.
const (
	phaseReady  = "Ready"
	phaseFailed = "UpgradeFailed"

	statusIdle       = "idle"
	statusInProgress = "in-progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
	statusBlocked    = "blocked"

	keyHold        = prefix + "do-not-reconcile"
	keyFailedNodes = prefix + "failed-nodes"

	secretTalos        = "talos_version"
	secretKubernetes   = "kubernetes_version"
	secretInstallImage = "install_image"
	secretBusy         = "upgrade_in_progress"
	secretType         = "upgrade_type"
	secretTarget       = "upgrade_target"
	secretState        = "upgrade_state"
)

// vitistack is the operator of one KubernetesCluster. Between passes it remembers what it works on; it reads the
// rest each time.
type vitistack struct {
	options Options
	of      cluster.Reference
	hands   *hands
	job     *job
	// gaveUp are the targets that it does not try again, by half.
	gaveUp map[version.Product]string
	// unsaid is what it could not write yet.
	unsaid report
	// secret is the Secret as of this pass; without a name if there is none.
	secret cluster.Secret
}

// job is an upgrade of one half that is under way.
type job struct {
	half   version.Product
	target version.Version
	roll   *roll // of Kubernetes only
	undo   bool  // nobody asked for it
}

func newVitistack(options Options) *vitistack {
	return &vitistack{
		options: options,
		of: cluster.Reference{
			APIVersion: VitistackAPIVersion, Kind: VitistackKind, Namespace: options.Namespace, Name: options.Name,
		},
		hands:  &hands{options: options},
		gaveUp: map[version.Product]string{},
		unsaid: newReport(),
	}
}

// halves returns the halves in the order in which they are handled.
func halves() []version.Product { return []version.Product{version.Talos, version.Kubernetes} }

// key returns the key of an annotation of a half.
func key(product version.Product, name string) string { return prefix + string(product) + "-" + name }

// pass reads the object once, and takes the next step.
func (v *vitistack) pass(ctx context.Context) {
	object, err := v.options.Objects.Get(ctx, v.of)
	if err != nil || text(object, keyMetadata, "deletionTimestamp") != "" {
		return
	}

	notes := annotationsOf(object)

	if notes[keyHold] != "" && !v.options.Habits.IgnoresHold {
		// The holder reports for the cluster now.
		v.unsaid = newReport()

		// After the hold, what to undo is decided again, from the Secret at that time.
		if v.job != nil && v.job.undo {
			v.job = nil
		}

		if v.options.Habits.Fights {
			v.fight(ctx)
		}

		return
	}

	if !v.write(ctx) {
		return
	}

	clusterID := text(object, keySpec, "data", "clusterId")

	v.secret, err = v.options.Objects.SecretOf(ctx, v.of.Namespace, clusterLabel, clusterID)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return
	}

	v.believe(notes)
	v.act(ctx, notes)
	v.write(ctx)
}

// fight writes what the habit of fighting writes while it is held.
func (v *vitistack) fight(ctx context.Context) {
	said := newReport()

	for _, product := range halves() {
		said.annotations[key(product, "status")] = statusIdle
		said.annotations[key(product, "message")] = "Waiting for an upgrade to be requested"
	}

	v.unsaid = said
	v.write(ctx)
	v.unsaid = newReport()
}

// believe reports what the operator believes the cluster runs, which is what it wrote into the Secret, and what it
// offers.
func (v *vitistack) believe(notes map[string]string) {
	for _, product := range halves() {
		current := v.current(product)
		if current.IsZero() {
			continue
		}

		if plain(notes[key(product, "current")]) != current.String() {
			v.say(product, "current", v.spell(current))
		}

		if notes[key(product, "status")] == "" {
			v.say(product, "status", statusIdle)
		}

		v.offer(product, current, notes)
	}
}

// offer announces a newer version if there is no target.
func (v *vitistack) offer(product version.Product, current version.Version, notes map[string]string) {
	given := v.options.Newest.Talos
	if product == version.Kubernetes {
		given = v.options.Newest.Kubernetes
	}

	newest, err := version.Parse(given)
	if err != nil || v.job != nil || notes[key(product, "target")] != "" {
		return
	}

	suits := product == version.Talos || supports(v.current(version.Talos), newest)

	switch standing := notes[key(product, "available")]; {
	case current.Less(newest) && suits:
		v.say(product, "available", v.spell(newest))

		if status := notes[key(product, "status")]; status == "" || status == statusIdle {
			v.say(product, "message", "Upgrade available: "+v.spell(current)+" → "+v.spell(newest))
		}
	case standing != "":
		v.unsay(product, "available")
	}
}

// current returns what the operator believes the cluster runs; zero without a Secret.
func (v *vitistack) current(product version.Product) version.Version {
	field := secretTalos
	if product == version.Kubernetes {
		field = secretKubernetes
	}

	parsed, err := version.Parse(strings.TrimSpace(string(v.secret.Data[field])))
	if err != nil {
		return version.Version{}
	}

	return parsed
}

// spell returns a version as this operator writes it.
func (v *vitistack) spell(given version.Version) string {
	if v.options.Habits.WithV {
		return given.Tag()
	}

	return given.String()
}

// act begins what is asked for, or continues it.
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

	// A job that begins is reported before anything is done, at the next pass.
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

// start accepts a target, or reports why not.
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

// stateOf returns the progress of an upgrade as it is in the Secret.
func stateOf(product version.Product, target, phase string) string {
	return fmt.Sprintf(`{"upgradeType":%q,"targetVersion":%q,"phase":%q}`, product, target, phase)
}

// running returns what the operator believes the cluster runs, or else what it runs.
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

// check returns why a target cannot be accepted, in the operator's words.
func (v *vitistack) check(product version.Product, target version.Version) error {
	if product == version.Kubernetes {
		return checkKubernetes(v.options.World, target)
	}

	if talos := lowestTalos(v.options.World); target.Less(talos) {
		return fmt.Errorf("target version %s is not newer than the current version %s", v.spell(target), v.spell(talos))
	}

	return nil
}

// wanted reports whether the job is still asked for. A job that is not ends once no machine is being upgraded.
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

	// Another target is accepted at the next pass.
	if target == "" && !v.options.Habits.LeavesInProgress {
		v.say(product, "status", statusIdle)
		v.say(product, "message", product.Name()+" upgrade cancelled")
		v.unsay(product, "progress")
		v.standing(product, phaseReady, "False", "Cancelled", product.Name()+" upgrade cancelled")
	}

	return false
}

// block reports that Kubernetes has to wait for Talos.
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

// complete reports that a half is done.
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

// fail reports that a half has failed. The target stays, and so does the mark that it is at work on what it began;
// only the state shows that it is over.
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

// report is what is to be written; what could not be written is kept for the next pass.
type report struct {
	annotations map[string]any
	secret      map[string]string
	phase       string
	message     string
	// conditions are by type; only those that the operator writes about a half.
	conditions map[string]map[string]any
}

func newReport() report {
	return report{annotations: map[string]any{}, secret: map[string]string{}, conditions: map[string]map[string]any{}}
}

func (v *vitistack) say(product version.Product, name, value string) {
	v.unsaid.annotations[key(product, name)] = value
}

func (v *vitistack) unsay(product version.Product, name string) {
	v.unsaid.annotations[key(product, name)] = nil
}

// standing reports the state of the half and, with it, of the cluster.
func (v *vitistack) standing(product version.Product, phase, status, reason, message string) {
	v.unsaid.phase, v.unsaid.message = phase, message

	kind := product.Name() + "Upgrade"
	v.unsaid.conditions[kind] = condition(v.options.Clock.Now(), kind, status, reason, message)
}

// write writes what is unsaid, and reports whether all of it was written.
func (v *vitistack) write(ctx context.Context) bool {
	if len(v.unsaid.secret) > 0 && v.secret.Name != "" {
		if v.options.Objects.WriteSecret(ctx, v.of.Namespace, v.secret.Name, v.unsaid.secret) != nil {
			return false
		}
	}

	clear(v.unsaid.secret)

	if len(v.unsaid.annotations) > 0 {
		patch := map[string]any{keyMetadata: map[string]any{keyAnnotations: v.unsaid.annotations}}
		if v.options.Objects.Patch(ctx, v.of, "", patch) != nil {
			return false
		}
	}

	clear(v.unsaid.annotations)

	if (v.unsaid.phase != "" || len(v.unsaid.conditions) > 0) && v.writeStatus(ctx) != nil {
		return false
	}

	v.unsaid = newReport()

	return true
}

// writeStatus writes phase and conditions, and leaves alone the conditions that are not about an upgrade.
func (v *vitistack) writeStatus(ctx context.Context) error {
	object, err := v.options.Objects.Get(ctx, v.of)
	if err != nil {
		return err
	}

	listed, _ := section(object, partStatus)["conditions"].([]any)
	conditions := make([]any, 0, len(listed)+len(halves()))
	said := map[string]bool{}

	for _, entry := range listed {
		standing, _ := entry.(map[string]any)
		kind := text(standing, "type")
		wanted, has := v.unsaid.conditions[kind]

		switch {
		case !has:
			conditions = append(conditions, standing)
		case text(standing, "status") == text(wanted, "status"):
			// The time is that of the last change of the status.
			wanted = with(wanted, map[string]any{"lastTransitionTime": text(standing, "lastTransitionTime")})
			fallthrough
		default:
			said[kind] = true

			conditions = append(conditions, wanted)
		}
	}

	for _, product := range halves() {
		kind := product.Name() + "Upgrade"
		if wanted, has := v.unsaid.conditions[kind]; has && !said[kind] {
			conditions = append(conditions, wanted)
		}
	}

	status := map[string]any{"conditions": conditions}
	if v.unsaid.phase != "" {
		status["phase"], status[keyMessage] = v.unsaid.phase, v.unsaid.message
	}

	// Somebody else's write in between is seen at the next pass.
	err = v.options.Objects.Patch(ctx, v.of, partStatus, map[string]any{
		keyMetadata: map[string]any{keyResourceVersion: text(object, keyMetadata, keyResourceVersion)},
		partStatus:  status,
	})
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}

	return nil
}

// upgradeMachines takes the next step of an upgrade of Talos.
func (v *vitistack) upgradeMachines() {
	to := v.job.target.String()

	if at := v.hands.at; at != nil {
		back, err := v.hands.back(to)
		if err != nil {
			v.failAt(err, at.node)

			return
		}

		if !back {
			return
		}
	}

	states := workersFirst(v.options.World)

	for _, state := range states {
		if state.Talos == to {
			continue
		}

		// Nothing is begun while etcd has no quorum.
		if !v.options.World.EtcdQuorum() {
			return
		}

		if err := v.hands.begin(state, to); err != nil {
			v.failAt(err, state.Name)

			return
		}

		v.working(state.Name)

		return
	}

	if v.job.undo {
		v.job = nil

		return
	}

	v.complete(version.Talos, v.job.target)
}

// failAt gives up the job because of a node.
func (v *vitistack) failAt(why error, node string) {
	if v.job.undo {
		v.job, v.hands.at = nil, nil

		return
	}

	v.say(v.job.half, "progress", v.progress())
	v.fail(v.job.half, v.job.target.String(), why, node)
}

// rollKubernetes takes the next step of an upgrade of Kubernetes.
func (v *vitistack) rollKubernetes(ctx context.Context) {
	done, node, err := v.job.roll.step(ctx)

	switch {
	case err != nil:
		v.failAt(err, node)
	case done:
		v.complete(version.Kubernetes, v.job.target)
	case node != "":
		v.working(node)
	}
}

// working reports at which node the operator is.
func (v *vitistack) working(node string) {
	if v.job.undo {
		return
	}

	product := v.job.half
	message := fmt.Sprintf("Upgrading node %s (%s)", node, v.progressWith(1))

	v.say(product, "message", message)
	v.say(product, "progress", v.progress())
	v.standing(product, "Upgrading"+product.Name(), "True", "InProgress", message)
}

// progress returns how many machines run the target of the job, of all.
func (v *vitistack) progress() string { return v.progressWith(0) }

func (v *vitistack) progressWith(under int) string {
	states := v.options.World.Nodes()
	done := 0

	for _, state := range states {
		switch to := v.job.target.String(); {
		case v.job.half == version.Talos && state.Talos == to:
			done++
		case v.job.half == version.Kubernetes && atKubernetes(state, to):
			done++
		}
	}

	return fmt.Sprintf("%d/%d", min(done+under, len(states)), len(states))
}
