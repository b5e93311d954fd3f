// SPDX-License-Identifier: MPL-2.0

// Package publish shows people and other tools how an upgrade is going, as upgrade.vitistack.io annotations on an
// object, and as phase and conditions in its status if its kind has them. It observes the engine and never blocks
// it: what cannot be published is retried in the background, and flushing or closing the publisher checks the
// final state.
//
// For a product that a run does not manage, and for both if there is nothing to do, it publishes which version runs and
// which could run next. It also publishes that the product is idle, unless an earlier result stands, as with an upgrade
// to the running version that is completed. It never writes a target, because an operator would act on it.
//
// Others may write to the same object. Only keys of this protocol are patched. If somebody else changes such a key, it
// is corrected with the next heartbeat or at the end of the run, and [Publisher.Notes] names it.
//
// The package also writes the same run as Kubernetes Events: see [Events].
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

// annotations are values by key, nil for annotations that should be removed. A key that is missing is left as it is.
type annotations map[string]*string

// statement is what should be said from an event on.
type statement struct {
	annotations annotations
	// idle are the products in which nothing is going on, by the key of their status: what is published about
	// them depends on what the object said before the run.
	idle map[string]product
}

func newStatement() statement { return statement{annotations{}, map[string]product{}} }

// add merges the statement about a later event, which wins. If the run is done and nothing is known of the progress of
// a product that was moving, the product becomes idle.
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

// runState is the part of a run's history that affects what is said.
type runState struct {
	// running is true while the run goes on.
	running bool
	// begun is true once the run has passed all checks that could refuse it.
	begun bool
	// idle is true if the run had nothing to do when it began, and has neither done anything nor failed.
	idle bool
	// suspended is the reason for which upgrades are suspended, empty if they are not.
	suspended string
}

// after returns the state after an event.
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

// nothingToDo reports whether a run has nothing to do in either product.
func nothingToDo(event cluster.Event) bool {
	return !slices.ContainsFunc(products(event), func(p product) bool { return !p.settled() })
}

// translate returns what is to be said after an event, and the state of the run after it. If there is nothing to say,
// the statement is empty and the state is unchanged.
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

		// While upgrades are suspended, no other one begins after this one.
		if event.Kind == cluster.EventNodeDone && run.suspended != "" {
			about.sayWaiting(made.annotations, run)
		}
	case cluster.EventRollingBack:
		if !talos.managed() {
			// Only a rollback that a person asked for is published about a product that is not managed.
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

// order returns the product that an event is about, and the other one. The first is always a managed one: if
// Kubernetes is not managed, bootstrap manifests count as part of Talos.
func order(event cluster.Event, talos, kubernetes product) (about, other product) {
	switch {
	case !kubernetes.managed():
		return talos, kubernetes
	case !talos.managed(), event.Component != "":
		return kubernetes, talos
	case slices.Contains([]cluster.EventKind{cluster.EventRunStarted, cluster.EventSuspended, cluster.EventResumed, cluster.EventRunFailed}, event.Kind):
		// Such an event is about Talos until Talos is done, and then about Kubernetes.
		if talos.done() {
			return kubernetes, talos
		}
	}

	return talos, kubernetes
}

// product is what an event says about Talos or Kubernetes, and the keys under which it is published.
type product struct {
	name string
	// progress is the progress of the product. Its total is zero if the event has none, or if all nodes are held.
	progress cluster.Progress
	// target is zero if the product is not managed.
	target version.Version
	// next is the version that the product could be upgraded to next, zero if there is none. It is valid if
	// nextKnown is true.
	next      version.Version
	nextKnown bool

	availableKey, currentKey, statusKey, messageKey, progressKey string
	// condition is the type of the condition for the product.
	condition string
}

// products returns Talos and Kubernetes, in this order.
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

// managed reports whether the run manages the product.
func (p product) managed() bool { return !p.target.IsZero() }

// known reports whether the event has the progress of the product.
func (p product) known() bool { return p.progress.Total > 0 }

// done reports whether nothing is left to do in the product and every node is known to be at the target.
func (p product) done() bool {
	return p.known() && p.progress.Steps == 0 && p.progress.Complete()
}

// settled reports whether no step is left in the product, even if not every node shows the target yet. A product that is
// not managed is settled, one of unknown progress is not.
func (p product) settled() bool {
	return !p.managed() || p.known() && p.progress.Steps == 0
}

// say sets the status and the message of the product.
func (p product) say(said annotations, status, message string) {
	said[p.statusKey], said[p.messageKey] = textValue(status), textValue(message)
}

// sayStarted says that the upgrade of the product begins or goes on. If nothing is left to do, it says what
// sayCompleted says; if the progress is unknown, nothing.
func (p product) sayStarted(said annotations, run runState) {
	lowest := p.progress.Lowest

	switch {
	case !p.known():
	case run.idle || p.done():
		p.sayCompleted(said)
	case lowest.Equal(p.target):
		// The remaining steps change no version.
		p.say(said, protocol.StatusInProgress, fmt.Sprintf("Finishing the %s upgrade to %s", p.name, p.target))
	case lowest.IsZero():
		p.say(said, protocol.StatusInProgress, fmt.Sprintf("%s upgrade started: an unknown version \u2192 %s", p.name, p.target))
	default:
		p.say(said, protocol.StatusInProgress, fmt.Sprintf("%s upgrade started: %s \u2192 %s", p.name, lowest, p.target))
	}
}

// sayWaiting says that the product waits because upgrades are suspended.
func (p product) sayWaiting(said annotations, run runState) {
	p.say(said, protocol.StatusInProgress, "Waiting: "+run.suspended+p.countSuffix())
}

// reached returns the lowest version seen or, if that is unknown, the target. It is called when every node is done.
func (p product) reached() version.Version {
	if p.progress.Lowest.IsZero() {
		return p.target
	}

	return p.progress.Lowest
}

// sayCompleted says that the product is completed or, if not every node shows the target, that it is pending, and how
// many nodes do. If the progress is unknown, for example because all nodes are held, it says nothing.
func (p product) sayCompleted(said annotations) {
	switch {
	case !p.known():
	case !p.progress.Complete():
		p.say(said, protocol.StatusPending, fmt.Sprintf("%s upgrade applied: %s nodes show %s so far", p.name, p.showing(), p.target))
	default:
		p.say(said, protocol.StatusCompleted, fmt.Sprintf("%s upgrade completed: now running %s", p.name, p.reached()))
	}
}

// sayFailed says that the upgrade of the product failed.
func (p product) sayFailed(said annotations, event cluster.Event) {
	p.say(said, protocol.StatusFailed, p.name+" upgrade failed: "+shortReason(event))
}

// sayRollback returns the statement about a rollback that a person asked for: that it is under way or, once it is
// over, its result and what the nodes run. Afterwards the product, which is Talos, is idle and has no progress.
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

// sayBeside sets the state of the product for an event about the other one: completed or pending if nothing is left to
// do, blocked if steps are left. If the run has failed and the progress is unknown, the product has failed as well.
func (p product) sayBeside(said annotations, event cluster.Event, run runState, about product) {
	switch {
	case event.Kind == cluster.EventRunDone, run.idle, p.known() && p.settled():
		// If not every node shows the target, the product is pending, and not blocked.
		p.sayCompleted(said)
	case p.progress.Steps > 0:
		p.say(said, protocol.StatusBlocked, cmp.Or(p.progress.Waits, "Waiting for "+about.name+" upgrade to complete"))
	case event.Kind == cluster.EventRunFailed:
		p.sayFailed(said, event)
	}
}

// setNumbers adds the progress and the current version, if the event has them.
func (p product) setNumbers(said annotations) {
	if p.known() {
		said[p.progressKey] = textValue(p.count())
	}

	if !p.progress.Lowest.IsZero() {
		said[p.currentKey] = versionValue(p.progress.Lowest)
	}
}

func (p product) count() string { return fmt.Sprintf("%d/%d", p.progress.Done, p.progress.Total) }

// showing is [product.count] of the nodes of which everything shows the target.
func (p product) showing() string {
	return fmt.Sprintf("%d/%d", p.progress.Done-p.progress.Lagging, p.progress.Total)
}

// countSuffix returns the progress as the end of a message, or an empty string if the event does not have it.
func (p product) countSuffix() string {
	if !p.known() {
		return ""
	}

	return " (" + p.count() + ")"
}

// intermediate names the version of a step that does not reach the target, so that the node is not taken to be at
// the target.
func (p product) intermediate(event cluster.Event) string {
	if event.Returns || event.Component == cluster.Manifests || event.To.IsZero() || event.To.Equal(p.target) {
		return ""
	}

	return " to " + event.To.String()
}

// turnWords returns the words for the beginning or the end of the upgrade of a node or component: the reason and the message
// of the Kubernetes Event about the object, and the message of the one about the node, which is empty for manifests.
func turnWords(event cluster.Event) (reason, message, ofNode string) {
	component, done := string(event.Component), event.Kind == cluster.EventNodeDone

	switch {
	case event.Component == "" && done:
		return "NodeUpgraded", "Node " + event.Node + " upgraded", "Node upgraded"
	case event.Returns:
		return "NodeReturning", "Returning node " + event.Node + " to service", "Returning the node to service"
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

// nextVersions is the type of [Options.Available].
type nextVersions func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)

// set sets the next versions in the products and in said, if they are known. A version that is not newer than the
// running one counts as none. The next version of Kubernetes depends on the running Talos: while Talos moves, according
// to the status in said, it is removed.
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

// isMoving reports whether a product with the status is being upgraded or rolled back.
func isMoving(status *string) bool { return status != nil && protocol.Status(*status).Busy() }

// isIdle reports whether the product is to be published as idle: one that is not managed when a run starts or ends, and
// a managed one if the run had nothing to do and every node is at the target. If the running version is unknown, false
// is returned.
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

// sayIdle says that nothing is going on in the product.
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

// annotationsAfter returns what the object should say, given what it said before the run. If the run has not begun and
// the object shows that somebody else upgrades the cluster, nil is returned.
func (s statement) annotationsAfter(run runState, before map[string]string) annotations {
	if !run.begun && upgradedByOther(before) {
		// A run that was refused because of another upgrader must not publish over that one.
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

// reconcileIdle adapts what is said about an idle product to what the object said before. If it said completed at the
// running version, or failed about a product that is not managed, its status, message and progress are left as they
// are. If it said failed at the running version, the product becomes idle. If it said anything else of an unfinished
// upgrade of a managed product, the product becomes completed.
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

// untouched returns the status, message and progress from before the run of each product of which no status is wanted
// and whose status was one of the given ones. If the product is not idle, only the status failed counts.
func (s statement) untouched(wanted annotations, before map[string]string, statuses ...string) annotations {
	found := annotations{}

	for _, p := range products(cluster.Event{}) {
		status := before[p.statusKey]
		_, said := wanted[p.statusKey]
		_, idle := s.idle[p.statusKey]

		if said || !slices.Contains(statuses, status) || !idle && status != protocol.StatusFailed {
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

// upgradedByOther reports whether the object has a target for an operator, or a busy status that no run of ours left.
func upgradedByOther(before map[string]string) bool {
	if before[protocol.KeyTalosTarget] != "" || before[protocol.KeyKubernetesTarget] != "" {
		return true
	}

	if cluster.IsRun(before[protocol.KeyHold]) || before[protocol.KeyLastUpdate] != "" {
		// An earlier run of ours left this behind.
		return false
	}

	return protocol.Status(before[protocol.KeyTalosStatus]).Busy() || protocol.Status(before[protocol.KeyKubernetesStatus]).Busy()
}

// shortLimit bounds a message, in runes, on an object that does not accept longer ones.
const shortLimit = 80

// shorten returns the annotations with short messages, and with available versions and failed nodes removed, for an
// object that refused the full ones.
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

// worthAnnouncing reports whether the difference between the annotation and the object is worth a run. Another message,
// another progress, and an available version that is missing or newer than the running one are not: otherwise each
// apply would overwrite what an operator writes in its own words or removes.
func worthAnnouncing(key string, value *string, found map[string]string) bool {
	stands, exists := found[key]

	switch key {
	case protocol.KeyTalosMessage, protocol.KeyKubernetesMessage:
		return !exists
	case protocol.KeyTalosProgress, protocol.KeyKubernetesProgress:
		// Nodes come and go even without an upgrade.
		return exists != (value != nil)
	case protocol.KeyTalosCurrent, protocol.KeyKubernetesCurrent:
		wanted, err := version.Parse(*value)

		return err != nil || !isVersion(stands, wanted)
	case protocol.KeyTalosAvailable:
		// An operator may remove it whenever it is asked for nothing.
		return exists && !isNewer(stands, found[protocol.KeyTalosCurrent])
	case protocol.KeyKubernetesAvailable:
		return exists && !isNewer(stands, found[protocol.KeyKubernetesCurrent])
	default:
		return !equal(value, lookup(found, key))
	}
}

// isStatus reports whether the annotation is the status of a product.
func isStatus(key string) bool {
	return key == protocol.KeyTalosStatus || key == protocol.KeyKubernetesStatus
}

// isVersion reports whether the text is the version, with or without "v".
func isVersion(text string, v version.Version) bool {
	found, err := version.Parse(strings.TrimSpace(text))

	return err == nil && found.Equal(v)
}

// isNewer reports whether a is a newer version than b.
func isNewer(a, b string) bool {
	newer, err := version.Parse(a)
	older, unknown := version.Parse(b)

	return err == nil && unknown == nil && older.Less(newer)
}

// textValue returns the value of an annotation, escaped to be printable.
func textValue(text string) *string {
	text = readable.Escaped(text)

	return &text
}

// versionValue returns the value of an annotation with a version, or nil if the version is zero.
func versionValue(v version.Version) *string {
	if v.IsZero() {
		return nil
	}

	return textValue(v.String())
}

// lookup returns the annotation that was found, or nil if there is none.
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
	// reasonLimit, in runes, keeps a long error from crowding out other annotations.
	reasonLimit = 500
	// listLimit, in bytes, keeps a long list of nodes from doing the same.
	listLimit = 8 << 10
	// cutOff ends a list that is incomplete.
	cutOff = ",..."
)

// failedNodes lists the nodes of a failed run, or returns nil if the event names none. A list that is too long is
// cut between two names.
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

// nodesOf returns the nodes that an event is about, without duplicates.
func nodesOf(event cluster.Event) []string {
	var names []string

	for name := range strings.SplitSeq(event.Node, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return names
}

// reasonOf returns the first line of the event's text or, if that is empty, of its error. If both are empty, it says that
// the reason is not known.
func reasonOf(event cluster.Event) string {
	text := strings.TrimSpace(event.Text)
	if text == "" && event.Err != nil {
		text = strings.TrimSpace(event.Err.Error())
	}

	text, _, _ = strings.Cut(text, "\n")

	return cmp.Or(text, "the reason is not known")
}

// shortReason is [reasonOf] cut to leave room for other annotations.
func shortReason(event cluster.Event) string { return truncate(reasonOf(event), reasonLimit) }

// truncate returns the text, cut to the given number of runes with an ellipsis if it is longer.
func truncate(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "\u2026"
	}

	return text
}
