// SPDX-License-Identifier: MPL-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// classAhead is the style of a node that has not begun.
const classAhead = "ahead"

// foldAbove is the number of lanes above which completed and future ones are collapsed.
const foldAbove = 40

// timeline is the picture: one lane per node, on an axis from the beginning of the run to its end, or to now.
type timeline struct {
	Ticks []tick
	// Lanes are shown at once, Folded only on request.
	Lanes  []laneView
	Folded []foldView
	Legend []kind
}

// tick is a mark on the axis, with its position in percent.
type tick struct{ Place, Text string }

// foldView are lanes with the same state.
type foldView struct {
	Name  string
	Lanes []laneView
}

func (f foldView) with(shown laneView) foldView {
	return foldView{Name: shown.Badge, Lanes: append(f.Lanes, shown)}
}

type laneView struct {
	Name, Role string
	// Class is the state of the node, Badge the word for it.
	Class, Badge string
	Bars         []bar
	Steps        []stepRow
}

// bar is a step on the axis, with its position and its width in percent.
type bar struct {
	Class, Place, Width, Title string
	Failed                     bool
}

// stepRow is a step in words.
type stepRow struct {
	Class, Name, Elapsed, Took, Text string
	Waits                            []string
	Failed                           bool
}

func (s *story) timeline(until time.Time) timeline {
	var made timeline

	if !s.moved() {
		return made
	}

	whole := until.Sub(s.began)
	if s.began.IsZero() || whole <= 0 {
		whole = time.Second
	}

	used := map[string]bool{}
	done, ahead := foldView{}, foldView{}
	lanes := s.ordered()

	for _, at := range lanes {
		shown := s.laneView(at, whole, until)

		for _, one := range shown.Bars {
			used[one.Class] = true
		}

		switch {
		case len(lanes) > foldAbove && at.node != "" && shown.Class == string(upgradeDone):
			done = done.with(shown)
		case len(lanes) > foldAbove && at.node != "" && shown.Class == classAhead:
			ahead = ahead.with(shown)
		default:
			made.Lanes = append(made.Lanes, shown)
		}
	}

	for _, folded := range []foldView{done, ahead} {
		if len(folded.Lanes) > 0 {
			made.Folded = append(made.Folded, folded)
		}
	}

	made.Ticks = ticks(whole)
	made.Legend = slices.DeleteFunc(slices.Clone(kinds[:]), func(one kind) bool { return !used[one.Class] })

	return made
}

// idle reports whether nothing was planned and nothing was done.
func (s *story) idle() bool { return s.outline == nil && !s.moved() }

// moved reports whether there is anything to draw.
func (s *story) moved() bool {
	for _, at := range s.lanes {
		if len(at.pieces)+len(at.upgrades) > 0 {
			return true
		}
	}

	return false
}

// turning reports whether any node has done anything yet.
func (s *story) turning() bool {
	return slices.ContainsFunc(s.order, func(name string) bool { return name != "" })
}

// ordered returns the lanes: that of the cluster, those of all nodes with an upgrade in the order of the plan,
// and then those of nodes without a planned upgrade.
func (s *story) ordered() []*lane {
	var lanes []*lane

	listed := map[string]bool{}

	add := func(name string) {
		at := s.lanes[name]

		switch {
		case listed[name]:
			return
		case at == nil:
			at = &lane{node: name}
		}

		listed[name] = true

		lanes = append(lanes, at)
	}

	if s.lanes[""] != nil {
		add("")
	}

	// If an operator carries out the upgrade, no node has an upgrade of ours.
	if s.outline != nil && s.turning() {
		for _, one := range s.outline.Upgrades {
			if one.Node != "" {
				add(one.Node)
			}
		}
	}

	for _, name := range s.order {
		add(name)
	}

	return lanes
}

func (s *story) laneView(at *lane, whole time.Duration, until time.Time) laneView {
	made := laneView{Name: nodeName(at.node), Role: s.role(at.node)}
	made.Class, made.Badge = s.standing(at)

	for _, one := range at.pieces {
		class, name := lookOf(one.step)
		end := one.until

		if end.IsZero() {
			end = until
		}

		name = strings.TrimSpace(string(one.component) + " " + name)
		lasted := took(end.Sub(one.from))

		made.Bars = append(made.Bars, bar{
			Class: class, Place: percent(one.from.Sub(s.began), whole), Width: percent(end.Sub(one.from), whole),
			Title: name + ", " + lasted, Failed: one.failed,
		})
		made.Steps = append(made.Steps, stepRow{
			Class: class, Name: name, Elapsed: elapsed(one.from.Sub(s.began)), Took: lasted, Text: one.text, Waits: slices.Clone(one.waits), Failed: one.failed,
		})
	}

	return made
}

// standing returns the state of the node as a style and a word.
func (s *story) standing(at *lane) (class, badge string) {
	completed := s.ending != nil && s.ending.Outcome == Completed

	if slices.Contains(s.failedNodes(), at.node) {
		return string(upgradeFailed), "failed"
	}

	if len(at.upgrades) == 0 {
		failed := slices.ContainsFunc(at.pieces, func(one *piece) bool { return one.failed })

		switch {
		case failed:
			return string(upgradeFailed), "failed"
		case at.node == "":
			return "", ""
		case completed:
			return string(upgradeDone), "no upgrade needed"
		case s.ending != nil:
			return classAhead, "not begun"
		default:
			return classAhead, "to come"
		}
	}

	last := at.upgrades[len(at.upgrades)-1]

	switch {
	case slices.ContainsFunc(at.upgrades, func(one *upgrade) bool { return one.state == upgradeFailed }) && last.state != upgradeDone:
		return string(upgradeFailed), "failed"
	case last.state == upgradeRunning:
		return string(upgradeRunning), "on the way"
	case last.state == upgradeStopped:
		return string(upgradeStopped), "stopped"
	case !completed && s.upgradesLeft(at) > 0:
		return string(upgradeStopped), "partly done"
	default:
		return string(upgradeDone), "done"
	}
}

// upgradesLeft returns how many planned upgrades of the node were not completed.
func (s *story) upgradesLeft(at *lane) int {
	left := s.planned[at.node]

	for _, one := range at.upgrades {
		if one.state == upgradeDone {
			left--
		}
	}

	return max(left, 0)
}

func (s *story) role(node string) string {
	return roleName(s.roles[node])
}

// ticks returns the marks on the axis. A mark so near the end that its text has no room is left out.
func ticks(whole time.Duration) []tick {
	const room = 0.93

	var marks []tick

	step := tickStep(whole)
	for at := time.Duration(0); at.Seconds() <= whole.Seconds()*room; at += step {
		marks = append(marks, tick{Place: percent(at, whole), Text: elapsed(at)})
	}

	return marks
}

// percent returns the part as a percentage of the whole, for a style sheet.
func percent(part, whole time.Duration) string {
	const all, digits = 100, 3

	share := min(max(float64(part)/float64(whole)*all, 0), all)

	return strconv.FormatFloat(share, 'f', digits, 64)
}

// lane is the history of one node, or of the cluster.
type lane struct {
	node string
	// pieces are the steps in the order in which they began, even those of concurrent upgrades.
	pieces   []*piece
	upgrades []*upgrade
}

// upgrade is the upgrade of one node, or of one component of it, to a version.
type upgrade struct {
	component cluster.Component
	to        version.Version
	from      time.Time
	// until is zero while the upgrade is running.
	until time.Time
	state upgradeState
}

type upgradeState string

const (
	upgradeRunning upgradeState = "running"
	upgradeDone    upgradeState = "done"
	upgradeFailed  upgradeState = "failed"
	upgradeStopped upgradeState = "stopped"
)

// piece is one step, which ends when the next step of its upgrade begins.
type piece struct {
	upgrade     *upgrade
	component   cluster.Component
	step        cluster.NodeStep
	text        string
	from, until time.Time
	failed      bool
	// waits are the last things the step waited for.
	waits []string
}

// open returns the running upgrade of the component, or nil if there is none.
func (l *lane) open(component cluster.Component) *upgrade {
	for _, one := range slices.Backward(l.upgrades) {
		if one.component == component && one.until.IsZero() {
			return one
		}
	}

	return nil
}

// last returns the running piece of the upgrade that began last, or nil if there is none. If of is nil, it looks
// at the pieces without an upgrade.
func (l *lane) last(of *upgrade) *piece {
	for _, one := range slices.Backward(l.pieces) {
		if one.upgrade == of && one.until.IsZero() {
			return one
		}
	}

	return nil
}

// forget drops the last upgrade of the component if it led to the same version and was given up before it touched
// anything: a node that waits for room may begin again and again for hours.
func (l *lane) forget(component cluster.Component, to version.Version) {
	last := len(l.upgrades) - 1
	if last < 0 || l.upgrades[last].component != component || l.upgrades[last].state != upgradeStopped || !l.upgrades[last].to.Equal(to) {
		return
	}

	given := l.upgrades[last]
	touched := func(one *piece) bool {
		return one.upgrade == given && one.step != cluster.StepGates && one.step != cluster.StepPull
	}

	if slices.ContainsFunc(l.pieces, touched) {
		return
	}

	l.upgrades = l.upgrades[:last]
	l.pieces = slices.DeleteFunc(l.pieces, func(one *piece) bool { return one.upgrade == given })
}

// culprit returns the step at which the upgrade failed. If the upgrade ended by returning its node to service, or
// by rolling it back, it failed at an earlier step.
func (l *lane) culprit(of *upgrade) *piece {
	var steps []*piece

	for _, one := range l.pieces {
		if one.upgrade == of {
			steps = append(steps, one)
		}
	}

	after := []cluster.NodeStep{cluster.StepUncordon, cluster.StepReady, cluster.StepEtcd}

	back := slices.IndexFunc(steps, func(one *piece) bool { return one.step == cluster.StepRollback })
	if back > 0 {
		steps, after = steps[:back], []cluster.NodeStep{cluster.StepCordon, cluster.StepDrain}
	}

	last := len(steps) - 1
	if back > 0 || last >= 0 && steps[last].step == cluster.StepUncordon {
		for last > 0 && slices.Contains(after, steps[last].step) {
			last--
		}
	}

	if last < 0 {
		return nil
	}

	return steps[last]
}

// nodeName returns the name of a lane on the page.
func nodeName(name string) string {
	if name == "" {
		return "cluster"
	}

	return name
}

// took formats a duration for people, in whole seconds.
func took(d time.Duration) string {
	d = max(d, 0).Round(time.Second)

	hours, minutes, seconds := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60

	switch {
	case hours > 0:
		return fmt.Sprintf("%d h %02d min", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min %02d s", minutes, seconds)
	default:
		return fmt.Sprintf("%d s", seconds)
	}
}

// elapsed formats the time since the beginning of the run as a clock: "04:12" or "1:04:12".
func elapsed(d time.Duration) string {
	d = max(d, 0).Round(time.Second)

	hours, minutes, seconds := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60
	if hours > 0 {
		return fmt.Sprintf("%d:%02d:%02d", hours, minutes, seconds)
	}

	return fmt.Sprintf("%02d:%02d", minutes, seconds)
}

// tickStep returns the shortest distance with no more than maxTicks marks.
func tickStep(whole time.Duration) time.Duration {
	for _, step := range tickSteps {
		if whole/step <= maxTicks {
			return step
		}
	}

	longest := tickSteps[len(tickSteps)-1]
	days := int64(whole / longest)

	return longest * time.Duration(days/maxTicks+1)
}

// lookOf returns the style and the name of a step. A step that is not in looks counts as a wait and keeps the
// engine's name.
func lookOf(step cluster.NodeStep) (class, name string) {
	for _, look := range &looks {
		if look.step == step {
			return look.class, look.name
		}
	}

	return "wait", string(step)
}
