// SPDX-License-Identifier: MPL-2.0

package report

import (
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// These keep the report of a run that waits for days readable. maxWaits is the number of different waits kept for a
// step, the last ones. maxLogLines bounds the lines of the log: the first half is kept; after it, the oldest line that
// is not a warning is dropped, or the oldest warning if there is no other.
const (
	maxWaits    = 3
	maxLogLines = 400
)

// story is what a run has done so far, folded from its events.
type story struct {
	// began is the time of the first event, seen that of the latest.
	began, seen time.Time
	// started is true once the lease is held.
	started bool
	target  cluster.Target
	outline *cluster.Outline
	// roles is the role of each node in the outline, planned the number of its upgrades.
	roles   map[string]cluster.Role
	planned map[string]int
	// talos and kubernetes are the progress of the products, from the last event in which the product is managed.
	talos, kubernetes cluster.Progress

	// lanes are by node name; the lane of the cluster has an empty name.
	lanes map[string]*lane
	// order is the order in which the lanes were added.
	order []string
	lines []line
	// hidden is the number of lines that were dropped.
	hidden int
	// pace is the longest time between two writes of the file, zero until the first one.
	pace time.Duration
	// ending is nil while the run goes on.
	ending *Ending
}

// line is an entry of the log.
type line struct {
	at      time.Time
	node    string
	text    string
	warning bool
}

func newStory() *story { return &story{lanes: map[string]*lane{}} }

// fold updates the story with an event.
func (s *story) fold(event cluster.Event) {
	if event.Time.After(s.seen) {
		s.seen = event.Time
	}

	if s.began.IsZero() {
		s.began = event.Time
	}

	s.measure(event)

	if event.Kind != cluster.EventWaiting && event.Kind != cluster.EventWarning {
		// A step of the cluster without an upgrade, such as the etcd snapshot, has no event for its end.
		s.closeLoose(s.lanes[""], event.Time)
	}

	switch event.Kind {
	case cluster.EventPlanned:
		s.plan(event.Outline)
	case cluster.EventRunStarted:
		s.started = true
	case cluster.EventNodeStarted:
		s.begin(event)
	case cluster.EventNodeStep:
		s.step(event)
	case cluster.EventPulled:
		s.pulled(event)
	case cluster.EventNodeDone:
		s.end(event, upgradeDone)
	case cluster.EventNodeStopped:
		s.stop(event)
	case cluster.EventWaiting:
		s.wait(event)
	case cluster.EventWarning, cluster.EventSuspended:
		s.write(event, event.Text, true)
	case cluster.EventResumed:
		s.write(event, event.Text, false)
	case cluster.EventRollingBack:
		s.write(event, "to be sent back to Talos "+event.To.String()+": "+event.Text, true)
	case cluster.EventRunDone, cluster.EventRunFailed, cluster.EventRunLost, cluster.EventRolledBack:
		s.halt(event.Time)
	}
}

// plan takes over the outline of the run.
func (s *story) plan(outline *cluster.Outline) {
	s.outline, s.roles, s.planned = outline, map[string]cluster.Role{}, map[string]int{}

	if outline == nil {
		return
	}

	for index := range outline.Nodes {
		s.roles[outline.Nodes[index].Name] = outline.Nodes[index].Role
	}

	for index := range outline.Upgrades {
		s.planned[outline.Upgrades[index].Node]++
	}
}

// measure takes over the target and the progress of the products, if the event has them.
func (s *story) measure(event cluster.Event) {
	if !event.Target.Talos.IsZero() || !event.Target.Kubernetes.IsZero() {
		s.target = event.Target
	}

	if event.Talos.Managed {
		s.talos = event.Talos
	}

	if event.Kubernetes.Managed {
		s.kubernetes = event.Kubernetes
	}
}

func (s *story) lane(node string) *lane {
	if s.lanes[node] == nil {
		s.lanes[node] = &lane{node: node}
		s.order = append(s.order, node)
	}

	return s.lanes[node]
}

// begin adds a running upgrade. An earlier attempt that touched nothing is dropped.
func (s *story) begin(event cluster.Event) {
	at := s.lane(event.Node)
	s.closeLoose(at, event.Time)
	at.forget(event.Component, event.To)

	at.upgrades = append(at.upgrades, &upgrade{component: event.Component, to: event.To, from: event.Time, state: upgradeRunning})
}

// step adds a step to the lane and ends the previous one of the same upgrade, or of none. A snapshot is added to the
// lane of the cluster.
func (s *story) step(event cluster.Event) {
	node, text := event.Node, event.Text

	if event.Step == cluster.StepSnapshot {
		// A snapshot belongs to the cluster, whichever member it is taken from.
		node, text = "", strings.TrimSpace("from "+node+" "+text)
	}

	at := s.lane(node)
	during := at.open(event.Component)

	if before := at.last(during); before != nil {
		before.until = event.Time
	}

	at.pieces = append(at.pieces, &piece{upgrade: during, component: event.Component, step: event.Step, text: text, from: event.Time})
}

// pulled ends the pull of a node. If the event has an error, the pull is marked as failed.
func (s *story) pulled(event cluster.Event) {
	at := s.lane(event.Node)
	if one := at.last(nil); one != nil && event.Err != nil {
		one.failed = true
	}

	s.closeLoose(at, event.Time)
}

// closeLoose ends the pieces of the lane that belong to no upgrade.
func (s *story) closeLoose(at *lane, now time.Time) {
	if at == nil {
		return
	}

	for _, one := range at.pieces {
		if one.upgrade == nil && one.until.IsZero() {
			one.until = now
		}
	}
}

// end ends the upgrade that the event is about, with the state. If it failed, the step at which it failed is marked.
// If none is running, nothing changes.
func (s *story) end(event cluster.Event, state upgradeState) {
	at := s.lane(event.Node)

	during := at.open(event.Component)
	if during == nil {
		return
	}

	if one := at.last(during); one != nil {
		one.until = event.Time
	}

	during.until, during.state = event.Time, state
	if one := at.culprit(during); one != nil && state == upgradeFailed {
		one.failed = true
	}

	if state == upgradeDone && !event.To.IsZero() {
		during.to = event.To
	}
}

// stop ends an upgrade: as failed if the event has an error, otherwise as stopped, with a line in the log.
func (s *story) stop(event cluster.Event) {
	if event.Err != nil {
		s.end(event, upgradeFailed)

		return
	}

	s.end(event, upgradeStopped)
	s.write(event, event.Text, false)
}

// wait adds the text to the running step of the node that began last. If no step is running, or the event names no
// node, it is added to the log.
func (s *story) wait(event cluster.Event) {
	at := s.lanes[event.Node]
	if event.Node == "" || at == nil {
		s.write(event, event.Text, false)

		return
	}

	for _, one := range slices.Backward(at.pieces) {
		if !one.until.IsZero() {
			continue
		}

		one.waits = append(slices.DeleteFunc(one.waits, func(text string) bool { return text == event.Text }), event.Text)
		if len(one.waits) > maxWaits {
			one.waits = one.waits[1:]
		}

		return
	}

	s.write(event, event.Text, false)
}

// write adds a line to the log, unless the last one has the same node and text.
func (s *story) write(event cluster.Event, text string, warning bool) {
	added := line{at: event.Time, node: event.Node, text: text, warning: warning}

	if last := len(s.lines) - 1; last >= 0 && s.lines[last].text == text && s.lines[last].node == event.Node {
		return
	}

	s.lines = append(s.lines, added)
	if len(s.lines) <= maxLogLines {
		return
	}

	// Other lines are dropped before warnings, but not the one that was just added.
	at := maxLogLines / 2
	if calm := slices.IndexFunc(s.lines[at:maxLogLines], func(one line) bool { return !one.warning }); calm >= 0 {
		at += calm
	}

	s.lines = slices.Delete(s.lines, at, at+1)
	s.hidden++
}

// halt ends all running steps and upgrades. Such upgrades count as stopped.
func (s *story) halt(now time.Time) {
	for _, at := range s.lanes {
		for _, one := range at.pieces {
			if one.until.IsZero() {
				one.until = now
			}
		}

		for _, one := range at.upgrades {
			if one.until.IsZero() {
				one.until, one.state = now, upgradeStopped
			}
		}
	}
}

// finish ends the run at its last event, or at now if there was none. The failure of the ending corrects the upgrades:
// on a node that it does not name, failed becomes stopped; on a node that it names, the last upgrade becomes failed if
// it was stopped.
func (s *story) finish(ending Ending, now time.Time) {
	if s.began.IsZero() {
		s.began, s.seen = now, now
	}

	s.halt(s.seen)
	s.ending = &ending

	if ending.Failure == nil {
		return
	}

	for _, at := range s.lanes {
		failed := slices.Contains(ending.Failure.Nodes, at.node)

		for index, one := range at.upgrades {
			last := index == len(at.upgrades)-1

			switch {
			case one.state == upgradeFailed && !failed && at.node != "":
				one.state = upgradeStopped
			case one.state == upgradeStopped && failed && last:
				one.state = upgradeFailed
				if step := at.culprit(one); step != nil {
					step.failed = true
				}
			}
		}

		for _, one := range at.pieces {
			one.failed = one.failed && (one.upgrade == nil || one.upgrade.state == upgradeFailed)
		}
	}
}

// kind is a group of steps that share a colour, because readers can tell only so many apart.
type kind struct {
	// Class is the style, Name the text in the legend.
	Class, Name string
}

// kinds are all kinds, in the order of the legend.
var kinds = [...]kind{
	{"gates", "gates"},
	{"snapshot", "etcd snapshot"},
	{"pull", "pull"},
	{"drain", "cordon and drain"},
	{"install", "install or configure"},
	{"reboot", "reboot or restart"},
	{"wait", "wait for health"},
	{"rollback", "roll back"},
}

// looks are the class and the name of each step.
var looks = [...]struct {
	step        cluster.NodeStep
	class, name string
}{
	{cluster.StepGates, "gates", "wait for the gates"},
	{cluster.StepSnapshot, "snapshot", "etcd snapshot"},
	{cluster.StepPull, "pull", "pull"},
	{cluster.StepCordon, "drain", "cordon"},
	{cluster.StepDrain, "drain", "drain"},
	{cluster.StepInstall, "install", "install"},
	{cluster.StepInstaller, "install", "wait for the installer"},
	{cluster.StepInstallImage, "install", "write the install image"},
	{cluster.StepConfigure, "install", "configure"},
	{cluster.StepApply, "install", "apply the manifests"},
	{cluster.StepLegacy, "reboot", "upgrade and reboot"},
	{cluster.StepReboot, "reboot", "reboot"},
	{cluster.StepRestart, "reboot", "restart"},
	{cluster.StepReturn, "reboot", "wait for it to boot"},
	{cluster.StepEtcd, "wait", "wait for etcd"},
	{cluster.StepReady, "wait", "wait for Ready"},
	{cluster.StepRollout, "wait", "wait for the rollout"},
	{cluster.StepUncordon, "wait", "uncordon"},
	{cluster.StepRollback, "rollback", "roll back"},
}

// Outcome is how a run ended.
type Outcome string

const (
	// Completed: every managed node is at the target.
	Completed Outcome = "completed"
	// Refused: checks, or someone else, kept the run from beginning.
	Refused Outcome = "refused"
	// Failed: a node failed, or the run ended for any other reason.
	Failed Outcome = "failed"
	// Stopped: no node failed, but the run was cancelled, its time was up, or its window closed, even before it began.
	Stopped Outcome = "stopped"
	// Lost: the lease was taken, freed or deleted during the run.
	Lost Outcome = "lost"
)

// Ending is what is known when a run is over.
type Ending struct {
	Outcome Outcome
	// Failure is nil when the run completed.
	Failure *Failure
	// Nodes are those of the last observation; empty if there was none, or if they belong to another cluster.
	Nodes []cluster.Node
}

// Failure is why a run did not complete.
type Failure struct {
	// Summary is one line.
	Summary string
	// Nodes are those at which something failed.
	Nodes []string
	// Seen is what was observed.
	Seen string
	// Findings are the checks that refused the run, the guards that did not hold, or the other upgrades that failed
	// or were interrupted.
	Findings []cluster.Finding
	Excerpts []Excerpt
	// State is the state in which nodes and cluster are left, Remedy what to do now.
	State, Remedy string
}

// Excerpt is the end of a log.
type Excerpt struct {
	// Source says whose log it is, such as "machined on worker-1".
	Source string
	// Lines are in order, the oldest first.
	Lines []string
}
