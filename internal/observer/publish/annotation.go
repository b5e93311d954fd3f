// SPDX-License-Identifier: MPL-2.0

// Package publish tells people and other tools how an upgrade is going, as
// upgrade.vitistack.io annotations on an object, and as phase and conditions in
// its status where its kind has them. It observes the engine and never holds it
// up: what cannot be published is retried in the background, and the last word is
// made true when the publisher is flushed or closed.
//
// Of a product that a run does not manage, and of both where nothing is to be done,
// it says what runs and what could run, and that the product is idle, unless the
// object says already that an upgrade to the very version is completed. It never
// writes a target: an operator would take that for an order.
//
// Others may write to the same object. Only keys of ours are patched; what somebody
// else makes of them is corrected with the next heartbeat and no sooner, and
// [Publisher.Notes] names it.
package publish

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// annotations are values by their keys, nil for those that should not be there.
type annotations map[string]*string

// statement is what is to be said from an event on.
type statement struct {
	annotations annotations
	// idle are the products in which nothing goes on, by their status annotation:
	// what stands of them depends on what the object said before the run.
	idle map[string]product
}

func newStatement() statement { return statement{annotations{}, map[string]product{}} }

// add takes over what is said later, of an event.
func (s statement) add(later statement, event cluster.Event) {
	maps.Copy(s.annotations, later.annotations)
	maps.DeleteFunc(s.idle, func(status string, _ product) bool { return later.annotations[status] != nil })
	maps.Copy(s.idle, later.idle)

	if event.Kind != cluster.EventRunDone {
		return
	}

	for _, p := range products(event) {
		if !p.known() && isMoving(s.annotations[p.statusKey]) {
			p.say(s.annotations, protocol.StatusIdle, p.name+" upgrade ended: what the nodes run is not known")
		}
	}
}

// runState is how a run has gone so far, as far as what is said depends on it.
type runState struct {
	// running tells that it goes on.
	running bool
	// begun tells that it got past everything that keeps a run from beginning.
	begun bool
	// idle tells that nothing was to be done when it began, and nothing was done.
	idle bool
	// suspended is what was said of upgrades that somebody has suspended; empty where
	// nobody has.
	suspended string
}

// after is the state after an event.
func (r runState) after(event cluster.Event) runState {
	switch event.Kind {
	case cluster.EventRunStarted:
		r.running, r.begun, r.idle = true, true, nothingToDo(event)
	case cluster.EventNodeStarted, cluster.EventNodeDone, cluster.EventRollingBack:
		r.running, r.begun, r.idle = true, true, false
	case cluster.EventSuspended:
		r.suspended = shortReason(event)
	case cluster.EventResumed:
		r.suspended = ""
	case cluster.EventRunDone, cluster.EventRolledBack:
		r.running, r.begun = false, true
	case cluster.EventRunFailed:
		r.running, r.idle = false, false
	default:
	}

	return r
}

// nothingToDo tells whether a run has nothing to do in either product.
func nothingToDo(event cluster.Event) bool {
	return !slices.ContainsFunc(products(event), func(p product) bool { return !p.settled() })
}

// translate says what an event changes, and how the run stands after it. An event
// claims nothing that it does not say itself.
func translate(event cluster.Event, run runState, available nextVersions) (statement, runState) {
	both := products(event)
	talos, kubernetes := both[0], both[1]

	if event.Asked || event.Kind == cluster.EventRolledBack {
		return talos.sayRollback(event, available), run.after(event)
	}

	if !talos.managed() && !kubernetes.managed() {
		return statement{}, run
	}

	about, other := order(event, talos, kubernetes)
	made, next := newStatement(), run.after(event)

	switch event.Kind {
	case cluster.EventRunStarted:
		about.sayStarted(made.annotations, next)
		made.annotations[protocol.KeyFailedNodes] = nil
	case cluster.EventNodeStarted, cluster.EventNodeDone:
		_, message, _ := turnWords(event)
		about.say(made.annotations, protocol.StatusInProgress, message+about.intermediate(event)+about.countSuffix())

		// What was on its way is done, and nothing follows it.
		if event.Kind == cluster.EventNodeDone && run.suspended != "" {
			about.sayWaiting(made.annotations, run)
		}
	case cluster.EventRollingBack:
		if !talos.managed() {
			// Of what is not managed nothing is said.
			return statement{}, run
		}

		talos.say(made.annotations, protocol.StatusRollingBack, "Rolling back node "+event.Node+" to "+event.To.String()+": "+shortReason(event))
	case cluster.EventSuspended:
		about.sayWaiting(made.annotations, next)
	case cluster.EventResumed:
		about.say(made.annotations, protocol.StatusInProgress, fmt.Sprintf("Going on with the %s upgrade%s", about.name, about.countSuffix()))
	case cluster.EventRunDone:
		about.sayCompleted(made.annotations)
		made.annotations[protocol.KeyFailedNodes] = nil
	case cluster.EventRunFailed:
		about.sayFailed(made.annotations, event)
		made.annotations[protocol.KeyFailedNodes] = failedNodes(event)
	default:
		return statement{}, run
	}

	about.setNumbers(made.annotations)

	if other.managed() {
		other.sayBeside(made.annotations, event, next, about)
		other.setNumbers(made.annotations)
	}

	available.set(made.annotations, &talos, &kubernetes)

	for _, p := range [...]product{talos, kubernetes} {
		if p.isIdle(event, next) {
			p.sayIdle(made)
		}
	}

	return made, next
}

// order are the product that an event is about and the other one. What is not
// managed is never the first: bootstrap manifests that follow a roll of Talos are
// a part of that.
func order(event cluster.Event, talos, kubernetes product) (about, other product) {
	switch {
	case !kubernetes.managed():
		return talos, kubernetes
	case !talos.managed(), event.Component != "":
		return kubernetes, talos
	case slices.Contains([]cluster.EventKind{cluster.EventRunStarted, cluster.EventSuspended, cluster.EventResumed, cluster.EventRunFailed}, event.Kind):
		// Such an event is about what comes next.
		if talos.done() {
			return kubernetes, talos
		}
	}

	return talos, kubernetes
}

// product is what an event says about one of Talos and Kubernetes, and where that
// stands.
type product struct {
	name string
	// progress is how far the product is; without a total where the event does not
	// say.
	progress cluster.Progress
	// target is zero where the product is not managed.
	target version.Version
	// next is the version that the product could be upgraded to after it, if that is
	// known; zero where there is none.
	next      version.Version
	nextKnown bool

	availableKey, currentKey, statusKey, messageKey, progressKey string
	// condition is the type of its condition.
	condition string
}

// products are Talos and Kubernetes, in this order.
func products(event cluster.Event) []product {
	return []product{{
		name: "Talos", progress: event.Talos, target: event.Target.Talos, condition: protocol.ConditionTalos,
		availableKey: protocol.KeyTalosAvailable, currentKey: protocol.KeyTalosCurrent,
		statusKey: protocol.KeyTalosStatus, messageKey: protocol.KeyTalosMessage, progressKey: protocol.KeyTalosProgress,
	}, {
		name: "Kubernetes", progress: event.Kubernetes, target: event.Target.Kubernetes, condition: protocol.ConditionKubernetes,
		availableKey: protocol.KeyKubernetesAvailable, currentKey: protocol.KeyKubernetesCurrent,
		statusKey: protocol.KeyKubernetesStatus, messageKey: protocol.KeyKubernetesMessage, progressKey: protocol.KeyKubernetesProgress,
	}}
}

// managed tells whether the run is to say anything about the product.
func (p product) managed() bool { return !p.target.IsZero() }

// known tells whether the event says how far the product is.
func (p product) known() bool { return p.progress.Total > 0 }

// done tells whether nothing of the product is left to do and every node is known to
// be there.
func (p product) done() bool {
	return p.known() && p.progress.Steps == 0 && p.progress.Done == p.progress.Total
}

// settled tells whether a run has nothing to do in the product.
func (p product) settled() bool {
	return !p.managed() || p.known() && p.progress.Steps == 0
}

// say sets status and message of the product.
func (p product) say(said annotations, status, message string) {
	said[p.statusKey], said[p.messageKey] = textValue(status), textValue(message)
}

// sayStarted says that the product begins to move, or that there is nothing to do in
// it.
func (p product) sayStarted(said annotations, run runState) {
	lowest := p.progress.Lowest

	switch {
	case !p.known():
	case run.idle || p.done():
		p.sayCompleted(said)
	case lowest.Equal(p.target):
		// What is left to do moves no version.
		p.say(said, protocol.StatusInProgress, fmt.Sprintf("Finishing the %s upgrade to %s", p.name, p.target))
	case lowest.IsZero():
		p.say(said, protocol.StatusInProgress, fmt.Sprintf("%s upgrade started: an unknown version \u2192 %s", p.name, p.target))
	default:
		p.say(said, protocol.StatusInProgress, fmt.Sprintf("%s upgrade started: %s \u2192 %s", p.name, lowest, p.target))
	}
}

// sayWaiting says that the product does not move, because somebody has suspended the
// upgrades.
func (p product) sayWaiting(said annotations, run runState) {
	p.say(said, protocol.StatusInProgress, "Waiting: "+run.suspended+p.countSuffix())
}

// reached is what runs where every node is done. The lowest version seen is nearer to
// the truth than the one that was wanted.
func (p product) reached() version.Version {
	if p.progress.Lowest.IsZero() {
		return p.target
	}

	return p.progress.Lowest
}

// sayCompleted says that the product is done, as far as every node shows it, and
// nothing where no node does, as where all are held.
func (p product) sayCompleted(said annotations) {
	switch {
	case !p.known():
	case p.progress.Done < p.progress.Total:
		p.say(said, protocol.StatusPending, fmt.Sprintf("%s upgrade applied: %s nodes show %s so far", p.name, p.count(), p.target))
	default:
		p.say(said, protocol.StatusCompleted, fmt.Sprintf("%s upgrade completed: now running %s", p.name, p.reached()))
	}
}

// sayFailed says that the product did not get to its end.
func (p product) sayFailed(said annotations, event cluster.Event) {
	p.say(said, protocol.StatusFailed, p.name+" upgrade failed: "+shortReason(event))
}

// sayRollback says that a node is being sent back to its old system because a person asked
// for that or, once that is over, what the nodes run: nothing of it is an upgrade.
func (p product) sayRollback(event cluster.Event, available nextVersions) statement {
	made := newStatement()
	to := event.Node + " to " + event.To.String()

	switch {
	case event.Kind == cluster.EventRollingBack:
		p.say(made.annotations, protocol.StatusRollingBack, "Rolling back node "+to+": "+shortReason(event))

		return made
	case event.Err != nil:
		p.say(made.annotations, protocol.StatusFailed, "Unable to roll back node "+to+": "+shortReason(event))
	default:
		p.say(made.annotations, protocol.StatusIdle, "Rolled back node "+to+": "+shortReason(event))
	}

	p.setNumbers(made.annotations)
	made.annotations[p.progressKey] = nil
	other := products(event)[1]
	available.set(made.annotations, &p, &other)

	return made
}

// sayBeside says how the product is in an event that is about the other one. A run
// that ends leaves nothing behind that looks as if it went on.
func (p product) sayBeside(said annotations, event cluster.Event, run runState, about product) {
	switch {
	case event.Kind == cluster.EventRunDone, run.idle, p.known() && p.settled():
		// What is applied and not shown by every node waits for those alone.
		p.sayCompleted(said)
	case p.progress.Steps > 0:
		p.say(said, protocol.StatusBlocked, cmp.Or(p.progress.Waits, "Waiting for "+about.name+" upgrade to complete"))
	case event.Kind == cluster.EventRunFailed:
		p.sayFailed(said, event)
	}
}

// setNumbers adds the numbers that the event knows.
func (p product) setNumbers(said annotations) {
	if p.known() {
		said[p.progressKey] = textValue(p.count())
	}

	if !p.progress.Lowest.IsZero() {
		said[p.currentKey] = versionValue(p.progress.Lowest)
	}
}

func (p product) count() string { return fmt.Sprintf("%d/%d", p.progress.Done, p.progress.Total) }

// countSuffix is how far the product is, as the end of a message; empty where the
// event does not say.
func (p product) countSuffix() string {
	if !p.known() {
		return ""
	}

	return " (" + p.count() + ")"
}

// intermediate names a version between what ran and the target, so that nobody takes
// the node to be at the target.
func (p product) intermediate(event cluster.Event) string {
	if event.Component == cluster.Manifests || event.To.IsZero() || event.To.Equal(p.target) {
		return ""
	}

	return " to " + event.To.String()
}

// turnWords are the reason of an Event about a turn that begins or is done, and what it
// does, also where it is told of the node itself.
func turnWords(event cluster.Event) (reason, message, ofNode string) {
	component, done := string(event.Component), event.Kind == cluster.EventNodeDone

	switch {
	case event.Component == "" && done:
		return "NodeUpgraded", "Node " + event.Node + " upgraded", "Node upgraded"
	case event.Component == "":
		return "NodeUpgradeStarted", "Upgrading node " + event.Node, "Upgrading the node"
	case event.Component == cluster.Manifests && done:
		return "ManifestsSynced", "Bootstrap manifests synced", ""
	case event.Component == cluster.Manifests:
		return "ManifestsStarted", "Syncing the bootstrap manifests", ""
	case done:
		return "ComponentUpgraded", component + " on " + event.Node + " upgraded", component + " upgraded"
	default:
		return "ComponentUpgradeStarted", "Upgrading " + component + " on " + event.Node, "Upgrading " + component
	}
}

// nextVersions is as [Options.Available].
type nextVersions func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)

// set says which versions the products could be upgraded to, as far as that is
// known. A next version of Kubernetes is what the running Talos supports, which
// nobody can say while that is being upgraded.
func (a nextVersions) set(said annotations, talos, kubernetes *product) {
	if a == nil {
		return
	}

	moving := isMoving(said[talos.statusKey])
	runningTalos, runningKubernetes := talos.progress.Lowest, kubernetes.progress.Lowest
	talos.nextKnown = !runningTalos.IsZero()
	kubernetes.nextKnown = talos.nextKnown && !runningKubernetes.IsZero() && !moving

	if talos.nextKnown {
		nextTalos, nextKubernetes := a(runningTalos, runningKubernetes)
		if runningTalos.Less(nextTalos) {
			talos.next = nextTalos
		}

		if kubernetes.nextKnown && runningKubernetes.Less(nextKubernetes) {
			kubernetes.next = nextKubernetes
		}

		said[talos.availableKey] = versionValue(talos.next)
	}

	if kubernetes.nextKnown || moving {
		said[kubernetes.availableKey] = versionValue(kubernetes.next)
	}
}

// isMoving tells whether a product with the status is on its way.
func isMoving(status *string) bool { return status != nil && protocol.Status(*status).Busy() }

// isIdle tells whether nothing goes on in the product as far as the event and the
// state of the run say.
func (p product) isIdle(event cluster.Event, run runState) bool {
	switch {
	case !p.known() || p.progress.Lowest.IsZero():
		return false
	case p.managed():
		return run.idle && p.done()
	default:
		return event.Kind == cluster.EventRunStarted || event.Kind == cluster.EventRunDone || event.Kind == cluster.EventRunFailed
	}
}

// sayIdle says that nothing goes on in the product.
func (p product) sayIdle(made statement) {
	message := fmt.Sprintf("Upgrade available: %s \u2192 %s", p.progress.Lowest, p.next)

	switch {
	case !p.nextKnown:
		message = fmt.Sprintf("Running %s", p.progress.Lowest)
	case p.next.IsZero():
		message = fmt.Sprintf("Up to date: running %s", p.progress.Lowest)
	}

	p.say(made.annotations, protocol.StatusIdle, message)
	made.annotations[p.currentKey] = versionValue(p.progress.Lowest)
	made.idle[p.statusKey] = p

	if !p.managed() {
		made.annotations[p.progressKey] = nil
	}
}

// annotationsAfter are what is to stand on an object that said that before the run.
func (s statement) annotationsAfter(run runState, before map[string]string) annotations {
	if !run.begun && upgradedByOther(before) {
		// A run that was refused for the sake of another upgrader has nothing to say
		// of what that one does.
		return nil
	}

	made := maps.Clone(s.annotations)

	for _, p := range s.idle {
		p.reconcileIdle(made, before)
	}

	if made[protocol.KeyFailedNodes] == nil && len(s.untouched(made, before, protocol.StatusFailed)) > 0 {
		delete(made, protocol.KeyFailedNodes)
	}

	return made
}

// reconcileIdle changes what is said of an idle product where the object said
// something else of it before. An upgrade to the very version stays completed, and
// one that an earlier run has begun is completed now, unless it failed before it
// moved anything. A failure stands until somebody deals with that product.
func (p product) reconcileIdle(wanted annotations, before map[string]string) {
	status, sameVersion := before[p.statusKey], isVersion(before[p.currentKey], p.progress.Lowest)

	switch {
	case status == protocol.StatusCompleted && sameVersion, status == protocol.StatusFailed && !p.managed():
		delete(wanted, p.statusKey)
		delete(wanted, p.messageKey)
		delete(wanted, p.progressKey)
	case status == protocol.StatusFailed && sameVersion:
	case p.managed() && slices.Contains([]string{protocol.StatusInProgress, protocol.StatusRollingBack, protocol.StatusPending, protocol.StatusBlocked, protocol.StatusFailed}, status):
		p.sayCompleted(wanted)
	}
}

// untouched are the annotations of the products that stay as they were before the run
// with one of the statuses: nothing is said of them. Of a product of which nothing is
// known that is of interest only where it failed.
func (s statement) untouched(wanted annotations, before map[string]string, statuses ...string) annotations {
	found := annotations{}

	for _, p := range products(cluster.Event{}) {
		status := before[p.statusKey]
		_, said := wanted[p.statusKey]
		_, known := s.idle[p.statusKey]

		if said || !slices.Contains(statuses, status) || !known && status != protocol.StatusFailed {
			continue
		}

		for _, key := range []string{p.statusKey, p.messageKey, p.progressKey} {
			if value := lookup(before, key); value != nil {
				found[key] = value
			}
		}
	}

	return found
}

// upgradedByOther tells whether somebody else is upgrading the cluster, as far as the
// object tells.
func upgradedByOther(before map[string]string) bool {
	if before[protocol.KeyTalosTarget] != "" || before[protocol.KeyKubernetesTarget] != "" {
		return true
	}

	if cluster.IsRun(before[protocol.KeyHold]) || before[protocol.KeyLastUpdate] != "" {
		// It is what an earlier run of ours left behind.
		return false
	}

	return protocol.Status(before[protocol.KeyTalosStatus]).Busy() || protocol.Status(before[protocol.KeyKubernetesStatus]).Busy()
}

// shortLimit, in runes, is how long a message is on an object that takes no more.
const shortLimit = 80

// shorten is what of the annotations has to fit on any object.
func shorten(wanted annotations) annotations {
	made := maps.Clone(wanted)

	for _, key := range []string{protocol.KeyTalosMessage, protocol.KeyKubernetesMessage} {
		if made[key] != nil {
			made[key] = textValue(truncate(*made[key], shortLimit))
		}
	}

	for _, key := range []string{protocol.KeyTalosAvailable, protocol.KeyKubernetesAvailable, protocol.KeyFailedNodes} {
		if made[key] != nil {
			made[key] = nil
		}
	}

	return made
}

// worthAnnouncing tells whether the annotation would tell something that does not
// stand. Other words, or a newer version, are no reason to announce anything: an
// operator that says it in its own way would be contradicted for ever.
func worthAnnouncing(key string, value *string, found map[string]string) bool {
	stands, exists := found[key]

	switch key {
	case protocol.KeyTalosMessage, protocol.KeyKubernetesMessage:
		return !exists
	case protocol.KeyTalosProgress, protocol.KeyKubernetesProgress:
		// Nodes come and go where nothing is upgraded.
		return exists != (value != nil)
	case protocol.KeyTalosCurrent, protocol.KeyKubernetesCurrent:
		wanted, err := version.Parse(*value)

		return err != nil || !isVersion(stands, wanted)
	case protocol.KeyTalosAvailable:
		// An operator may take it away each time that nothing is asked of it.
		return exists && !isNewer(stands, found[protocol.KeyTalosCurrent])
	case protocol.KeyKubernetesAvailable:
		return exists && !isNewer(stands, found[protocol.KeyKubernetesCurrent])
	default:
		return !equal(value, lookup(found, key))
	}
}

// isVersion tells whether the text is the version, in either spelling.
func isVersion(text string, v version.Version) bool {
	found, err := version.Parse(strings.TrimSpace(text))

	return err == nil && found.Equal(v)
}

// isNewer tells whether a is a newer version than b.
func isNewer(a, b string) bool {
	newer, err := version.Parse(a)
	older, unknown := version.Parse(b)

	return err == nil && unknown == nil && older.Less(newer)
}

// textValue is the value of an annotation, printable whoever wrote it.
func textValue(text string) *string {
	text = readable.Escaped(text)

	return &text
}

// versionValue is the value of an annotation that names a version; nil where there is
// none.
func versionValue(v version.Version) *string {
	if v.IsZero() {
		return nil
	}

	return textValue(v.String())
}

// lookup is the annotation as it was found; nil where there is none.
func lookup(found map[string]string, key string) *string {
	if value, exists := found[key]; exists {
		return &value
	}

	return nil
}

func equal(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}

	return *a == *b
}

const (
	// reasonLimit, in runes, keeps a long error from crowding out what else is
	// annotated.
	reasonLimit = 500
	// listLimit, in bytes, does so for a long list of nodes.
	listLimit = 8 << 10
	// cutOff ends a list that is not whole.
	cutOff = ",..."
)

// failedNodes lists the nodes of a run that failed, cut off between two of them where
// the list is too long; nil where it is about none.
func failedNodes(event cluster.Event) *string {
	list := strings.Join(nodesOf(event), ",")
	if list == "" {
		return nil
	}

	if len(list) > listLimit {
		list = list[:listLimit-len(cutOff)]
		list = list[:max(strings.LastIndexByte(list, ','), 0)] + cutOff
	}

	return textValue(list)
}

// nodesOf are the nodes that an event is about, each once.
func nodesOf(event cluster.Event) []string {
	var names []string

	for name := range strings.SplitSeq(event.Node, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return names
}

// reasonOf is what the event says in its own words, in one line: the lines after the
// first are for those who read the log.
func reasonOf(event cluster.Event) string {
	text := strings.TrimSpace(event.Text)
	if text == "" && event.Err != nil {
		text = strings.TrimSpace(event.Err.Error())
	}

	text, _, _ = strings.Cut(text, "\n")

	return cmp.Or(text, "the reason is not known")
}

// shortReason is [reasonOf] with room for other annotations beside it.
func shortReason(event cluster.Event) string { return truncate(reasonOf(event), reasonLimit) }

// truncate is the text with at most so many runes.
func truncate(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "\u2026"
	}

	return text
}
