// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// schedule adds the steps of all nodes, hop by hop.
func (p *planner) schedule() {
	last := map[version.Product]int{}

	for index, hop := range p.made.Hops {
		last[hop.Product] = index
	}

	p.made.Steps = make([]Step, 0, len(p.nodes)*len(p.made.Hops))

	for index, hop := range p.made.Hops {
		switch {
		case hop.Product == version.Talos:
			p.scheduleTalos(index, hop, index == last[version.Talos])
		case index == 0:
			p.scheduleUnfinished()

			fallthrough
		default:
			p.scheduleComponents(index, hop, index == last[version.Kubernetes])
		}

		p.scheduleManifests(index, hop)
	}

	p.scheduleSync()
	p.dropSync()
	p.setMovesLater()

	if len(p.made.Steps) == 0 {
		p.made.Steps = nil
	}
}

// scheduleTalos adds the steps of the nodes that the hop moves and, in the first hop, of those that an earlier run
// left unfinished.
func (p *planner) scheduleTalos(index int, hop Hop, last bool) {
	moves := func(node *plannedNode) bool { return p.concerns(node, hop, last) }

	if index == 0 {
		p.scheduleReturns(moves)
	}

	for _, node := range p.order(index, moves) {
		switch {
		case moves(node):
			p.made.Steps = append(p.made.Steps, p.talosStep(node, index, hop, last))
			node.moves++
		case index == 0 && node.unfinished() && node.steps == 0:
			p.made.Steps = append(p.made.Steps, p.unfinishedStep(node))
		default:
			continue
		}

		node.steps++
	}
}

// scheduleReturns adds a return to service for each spare node: a worker that an earlier run has only cordoned, while
// another node is stranded as well, or other workers take up its place. What an earlier run left unfinished is
// finished alone, and the pods of a node that is drained may need the spare one, which moves later like any other. If
// all stranded nodes are only cordoned, all but the first of them are spare.
func (p *planner) scheduleReturns(moves func(*plannedNode) bool) {
	var cordoned []*plannedNode

	begun := false

	for _, node := range p.order(0, moves) {
		switch {
		case !node.stranded() || !moves(node) || p.policy.Run != "" && node.Kube != nil && node.Kube.CordonedBy == p.policy.Run:
		case !node.open && node.Role == cluster.Worker && node.Kube.Ready && node.Machine.Settled():
			cordoned = append(cordoned, node)
		default:
			begun = true
		}
	}

	if !begun && len(cordoned) > 0 && p.roomFor(cordoned[0]) {
		cordoned = cordoned[1:]
	}

	for _, node := range cordoned {
		node.spare = true
	}

	returns := func(node *plannedNode) bool { return !moves(node) || node.spare }

	for _, node := range p.order(0, func(node *plannedNode) bool { return !returns(node) }) {
		if node.stranded() && returns(node) {
			p.made.Steps = append(p.made.Steps, p.unfinishedStep(node))
			node.steps++
		}
	}
}

// roomFor reports whether each bound that covers the worker has a place for it, beside the unavailable workers that
// earlier runs have not cordoned.
func (p *planner) roomFor(worker *plannedNode) bool {
	left := map[string]bool{}

	for i := range p.nodes {
		node := &p.nodes[i]
		left[node.Name] = node.Kube != nil && node.Kube.Unschedulable && node.Kube.CordonedBy != ""
	}

	return !slices.ContainsFunc(Bounds(p.snapshot, p.policy), func(limit Bound) bool {
		return limit.Covers(worker.Name) && len(p.spent(limit, left).names) >= limit.Budget
	})
}

// setMovesLater sets MovesLater of each step that only returns its node to service, if a later step moves that node.
func (p *planner) setMovesLater() {
	moves := map[string]bool{}

	for i := len(p.made.Steps) - 1; i >= 0; i-- {
		step := &p.made.Steps[i]

		switch {
		case step.Component != "":
		case step.Done:
			step.MovesLater = moves[step.Node]
		default:
			moves[step.Node] = true
		}
	}
}

// concerns reports whether the hop moves the node. An intermediate hop moves only nodes of older minor versions, to
// spare the others a reboot.
func (p *planner) concerns(node *plannedNode, hop Hop, last bool) bool {
	if last {
		return node.talos.Compare(hop.To.Talos) <= 0 && !p.atTarget(node)
	}

	return node.talos.Minor().Compare(hop.To.Talos.Minor()) < 0
}

// talosStep returns the step that moves the node to the end of the hop, and records the move.
func (p *planner) talosStep(node *plannedNode, index int, hop Hop, last bool) Step {
	step := Step{
		Hop: index, Pool: node.poolName, Canary: node.canary, Estimate: turnEstimate,
		Node: node.Name, Role: node.Role, Address: node.Address, Key: node.key,
		From: node.talos, To: hop.To.Talos, Finish: node.steps == 0 && node.unfinished(),
	}

	switch {
	case node.Machine == nil && step.Finish:
		step.Image = node.entry.Image
	case node.Machine == nil:
		// Nothing better is known until the node answers again.
		running := cluster.Machine{Schematic: node.entry.PreviousSchematic, Platform: node.entry.Platform, Config: &cluster.MachineConfig{InstallImage: node.entry.Image}}
		choice, _ := p.chooseImage(&cluster.Node{Name: node.Name, Machine: &running}, step.To)
		step.Image, step.API = choice.Reference, cluster.Machine{Talos: step.From}.UpgradeAPI()
	default:
		choice := node.choice
		if !last {
			// What speaks against this image speaks against the last one, too, and is a finding about that one.
			choice, _ = p.chooseImage(node.installed(), step.To)
		}

		step.Image, step.Schematic, step.Demanded = choice.Reference, choice.Schematic, choice.Demanded
		step.API = cluster.Machine{Talos: step.From}.UpgradeAPI()

		p.checkStep(node, step)
	}

	node.talos = step.To

	return step
}

// scheduleUnfinished adds the steps that finish what an earlier run left, before a hop of Kubernetes.
func (p *planner) scheduleUnfinished() {
	for _, node := range p.order(0, func(*plannedNode) bool { return false }) {
		if node.unfinished() {
			p.made.Steps = append(p.made.Steps, p.unfinishedStep(node))
			node.steps++
		}
	}
}

// unfinishedStep returns the step that finishes what an earlier run left on a node that the hop does not move. If the
// node does not answer, it may still have to boot what that run installed.
func (p *planner) unfinishedStep(node *plannedNode) Step {
	step := Step{
		Pool: node.poolName, Canary: node.canary, Estimate: returnEstimate,
		Node: node.Name, Role: node.Role, Address: node.Address, Key: node.key,
		From: node.talos, To: node.talos, Finish: true,
	}

	if node.Machine == nil {
		step.Image = node.entry.Image
		if !node.entry.Target.IsZero() {
			step.To, node.talos = node.entry.Target, node.entry.Target
		}

		return step
	}

	step.Done, step.API = true, node.Machine.UpgradeAPI()

	if p.atTarget(node) {
		step.Image, step.Schematic, step.Demanded = node.choice.Reference, node.choice.Schematic, node.choice.Demanded
	}

	return step
}

// order returns the movable nodes in the order of their steps in the hop. In the first hop, what an earlier run left
// unfinished comes first, because nothing else may be disturbed before that is finished:
//
//  1. nodes that answer and are out of service;
//  2. nodes that answer and are in service;
//  3. nodes that do not answer, so that they do not keep the others from being finished.
//
// Within 1 and 2, nodes that the hop does not move go first: they only return to service, and the pods of a node that
// is drained may need them. So do spare nodes, whose move comes later (scheduleReturns). All other nodes follow.
// Otherwise, within each group, canaries go first, then nodes of the first role in the configured order, then
// unavailable nodes, because disturbing them costs nothing.
func (p *planner) order(hop int, moves func(*plannedNode) bool) []*plannedNode {
	first := cluster.Worker
	if p.policy.Order == cluster.ControlPlanesFirst {
		first = cluster.ControlPlane
	}

	ordered := make([]*plannedNode, 0, len(p.nodes))

	for i := range p.nodes {
		if node := &p.nodes[i]; p.movable(node) {
			ordered = append(ordered, node)
		}
	}

	slices.SortStableFunc(ordered, func(a, b *plannedNode) int {
		return cmp.Or(
			falseLast(hop == 0 && a.unfinished(), hop == 0 && b.unfinished()),
			falseLast(hop == 0 && a.stranded(), hop == 0 && b.stranded()),
			falseLast(hop == 0 && a.answersUnfinished(), hop == 0 && b.answersUnfinished()),
			falseLast(hop == 0 && a.answersUnfinished() && !moves(a), hop == 0 && b.answersUnfinished() && !moves(b)),
			falseLast(a.canary, b.canary),
			falseLast(a.Role == first, b.Role == first),
			falseLast(a.unavailable(), b.unavailable()),
			cmp.Compare(a.Name, b.Name),
		)
	})

	return ordered
}

// answersUnfinished reports whether an earlier run left the node unfinished, and the node answers.
func (s *plannedNode) answersUnfinished() bool { return s.unfinished() && s.Machine != nil }

// stranded reports whether an earlier run left the node unfinished, and the node answers and is out of service.
func (s *plannedNode) stranded() bool { return s.answersUnfinished() && !s.Available() }

// unavailable reports whether the node will be unavailable when its step in this hop comes. A node that had a
// step is back in service by then, unless it has a cordon that is not ours or no Node object.
func (s *plannedNode) unavailable() bool {
	if s.hasNodeStep() {
		return s.Kube == nil || s.cordonedElsewhere()
	}

	return !s.Available()
}

func falseLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// checkBudget refuses a roll that would get stuck because the budget of unavailable workers, or that of a pool,
// is used up by workers that are not brought back in time: the roll does not bring them back at all, or only
// after steps of others. It reports whether it refused.
func (p *planner) checkBudget() (refused bool) {
	for _, one := range Bounds(p.snapshot, p.policy) {
		if p.checkBound(one) {
			return true
		}
	}

	return false
}

// checkBound is [planner.checkBudget] for one bound.
func (p *planner) checkBound(limit Bound) (refused bool) {
	workers := make(map[string]*plannedNode, len(p.nodes))
	// passed are the workers that had their step.
	passed := make(map[string]bool, len(p.nodes))

	for i := range p.nodes {
		if node := &p.nodes[i]; node.Role == cluster.Worker {
			workers[node.Name] = node
		}
	}

	for first := 0; first < len(p.made.Steps); {
		stage := p.stage(first)
		first += len(stage)
		costs := false

		for i := range stage {
			node := workers[stage[i].Node]
			if node == nil || stage[i].Component != "" {
				continue
			}

			if !stage[i].Finish && limit.Covers(node.Name) {
				costs = costs || node.Available() || (passed[node.Name] && !node.cordonedElsewhere())
			}

			passed[node.Name] = true
		}

		if !costs {
			continue
		}

		if spent := p.spent(limit, passed).names; len(spent) >= limit.Budget {
			finding := cluster.Finding{
				Check: cluster.CheckNodesReady, Severity: cluster.Observed,
				Found:  fmt.Sprintf("%s is %d, and that is taken up by %s", limit.Says, limit.Budget, readable.List(spent)),
				Remedy: p.regain(limit, passed),
			}

			if limit.pool != nil {
				finding.Attribute, finding.Within = PoolAt(limit.pool.Name)
			}

			p.add(finding)

			return true
		}
	}

	return false
}

// stage returns the steps from the given one up to the next that is of another hop, or differs in Finish or Canary.
// Within a stage, unavailable workers may go first.
func (p *planner) stage(first int) []Step {
	steps := p.made.Steps[first:]

	for i := range steps {
		if steps[i].Hop != steps[0].Hop || steps[i].Finish != steps[0].Finish || steps[i].Canary != steps[0].Canary {
			return steps[:i]
		}
	}

	return steps
}

// spent are the workers that take up places of a bound and that the roll does not bring back in time, because
// they have a cordon that is not ours or have had no step yet.
type spent struct {
	// names are followed by the reason in brackets.
	names []string
	// cordoned, ours and unready are true if one of the workers is cordoned by somebody else, cordoned by an earlier
	// run, or not Ready. Each has another remedy.
	cordoned, ours, unready bool
}

func (p *planner) spent(limit Bound, passed map[string]bool) spent {
	var found spent

	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.Role != cluster.Worker, node.Kube == nil, node.Available(), !limit.Counts(node.Name):
		case node.cordonedElsewhere():
			found.names, found.cordoned = append(found.names, node.Name+" (cordoned)"), true
			found.unready = found.unready || !node.Kube.Ready
		case node.Kube.Unschedulable && !passed[node.Name]:
			found.names, found.ours = append(found.names, node.Name+" (cordoned by an earlier run)"), true
		case !passed[node.Name]:
			found.names, found.unready = append(found.names, node.Name+" (not ready)"), true
		}
	}

	return found
}

// regain says how to free places of a bound that is used up.
func (p *planner) regain(limit Bound, passed map[string]bool) string {
	var ways []string

	away := p.spent(limit, passed)

	if away.cordoned {
		ways = append(ways, "take their cordons away (kubectl uncordon)")
	}

	if away.ours {
		ways = append(ways, "let an apply finish what an earlier run began")
	}

	if away.unready {
		ways = append(ways, "bring back those that are not ready (kubectl describe node) or remove them from the cluster")
	}

	if SparesOne(p.snapshot) {
		ways = append(ways, "set "+strings.Join(p.roomier(passed), " and ")+", which lets the others go one after the other")
	}

	if last := len(ways) - 1; last > 0 {
		ways[last] = "or " + ways[last]
	}

	return upper(strings.Join(ways, ", ") + ".")
}

// roomier returns the lines of a configuration that leave one place free in each bound that is used up.
func (p *planner) roomier(passed map[string]bool) []string {
	var lines []string

	for _, limit := range Bounds(p.snapshot, p.policy) {
		if taken := len(p.spent(limit, passed).names); taken >= limit.Budget {
			lines = append(lines, limit.atLeast(taken+1))
		}
	}

	return lines
}

// SparesOne reports whether one more node may go out of service while another one still takes pods: only then is
// a larger max_unavailable safe. Nodes that a run of ours has cordoned count, because they come back by
// themselves.
func SparesOne(observed cluster.Observation) bool {
	takes := 0

	for i := range observed.Nodes {
		if node := &observed.Nodes[i]; !node.Gone && node.Kube != nil && node.Kube.Ready && takesPods(node) {
			takes++
		}
	}

	return takes > 1
}

// takesPods reports whether pods can be scheduled on the node, now or once a run of ours takes its cordon away.
func takesPods(node *cluster.Node) bool {
	return !node.Kube.ExcludesWorkloads && (!node.Kube.Unschedulable || node.Kube.CordonedBy != "")
}

// checkRoom refuses a roll that would take the only node that takes pods out of service while others are cordoned
// by somebody else: the pods would have nowhere to go. If no other node could take pods, as in a cluster with one
// worker, the roll goes on.
func (p *planner) checkRoom() {
	if !p.policy.Drain.Enabled {
		return
	}

	var (
		only     *plannedNode
		cordoned []string
	)

	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.Kube == nil, node.Kube.ExcludesWorkloads:
		case !takesPods(node.Node):
			// Lifting the cordon of a node that is not Ready would not help.
			if node.Kube.Ready {
				cordoned = append(cordoned, node.Name)
			}
		case only != nil:
			return
		default:
			only = node
		}
	}

	// A node that is not Ready serves no pods, so its first move does no harm. Before a second one, it is Ready.
	if only == nil || len(cordoned) == 0 || only.moves == 0 || only.unfinished() || !only.Kube.Ready && only.moves == 1 {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckDrain, Severity: cluster.Observed, Node: only.Name,
		Found:  "it is the only node that takes pods, and while it is upgraded they would have nowhere to go; cordoned by somebody else: " + readable.List(cordoned),
		Remedy: "Take a cordon away (kubectl uncordon), or add a node that takes pods.",
	})
}

// Startable returns the steps, in order, that may begin now beside the busy ones, which are those that have begun
// and not ended. The plan must have been made from the observation; it may or may not still have steps of busy
// nodes.
//
// What an earlier run left unfinished begins alone and before everything else. Control planes, manifests and all
// components but the kubelets of workers move one at a time with nothing beside them. Workers move beside workers
// in the same hop, and their kubelets beside kubelets, canaries before the others. The budget of their kind and that
// of their pool limit the steps in progress. A worker that is available begins only if fewer workers than the budget
// are unavailable. If a canary without a step left is held or not in service, no other node begins a step of Talos.
func (p Plan) Startable(observed cluster.Observation, busy []Step) []Step {
	if len(p.Steps) == 0 {
		return nil
	}

	if len(busy) > 0 && slices.ContainsFunc(busy, func(s Step) bool { return !s.parallel() }) {
		return nil
	}

	first := p.firstIdle(busy)
	if first < 0 {
		return nil
	}

	kubelets := p.Steps[first].Component == cluster.Kubelet
	free := newSlotPlan(observed, p.Policy, p.slotsFor(&p.Steps[first]), busy, kubelets)
	started := p.fill(free, busy)

	// A kubelet restarts within seconds, and waiting would bring no worker back: one is always started.
	if kubelets && len(started)+len(busy) == 0 && p.Steps[first].parallel() {
		return p.Steps[first : first+1]
	}

	return started
}

// firstIdle returns the index of the first step of a node that is not busy; negative if there is none.
func (p Plan) firstIdle(busy []Step) int {
	return slices.IndexFunc(p.Steps, func(step Step) bool {
		return !slices.ContainsFunc(busy, func(s Step) bool { return s.Node == step.Node })
	})
}

// fill returns the steps of the first hop that may begin now: as many as there are slots for, or one that runs alone.
func (p Plan) fill(free *slotPlan, busy []Step) []Step {
	var started []Step

	canaries := slices.ContainsFunc(busy, func(s Step) bool { return s.Canary })

	// waiting is true once a worker found no slot: steps that run alone have to wait behind it.
	waiting := false

	for i := range p.Steps {
		step := p.Steps[i]
		if step.Hop != p.Steps[0].Hop {
			break
		}

		// A pending canary holds the others back even while its node is busy.
		canaries = canaries || step.Canary

		switch {
		case free.busy[step.Node]:
			continue
		case p.faltering && step.behindCanaries():
			return started
		case !step.parallel():
			if len(busy)+len(started) == 0 && !waiting {
				return []Step{step}
			}

			return started
		case len(busy) > 0 && !busy[0].sameMove(step), len(started) > 0 && !started[0].sameMove(step), canaries && !step.Canary:
			return started
		case free.take(step.Node):
			started = append(started, step)
		default:
			waiting = true
		}
	}

	return started
}

// sameMove reports whether the steps move the same thing to the same version.
func (s *Step) sameMove(other Step) bool {
	return s.To.Equal(other.To) && s.Component == other.Component
}

// slotPlan counts the workers that are unavailable, or will be.
type slotPlan struct {
	// busy are the nodes whose step has begun.
	busy map[string]bool
	// available are the workers that are available now and not busy.
	available map[string]bool
	// limits are the bounds of all workers and of the pools; a step needs a free place in each one that covers
	// its worker.
	limits []*slotLimit
}

// slotLimit counts against the bound of all workers, or of a pool.
type slotLimit struct {
	Bound

	// underway is the number of steps in progress, away the number of unavailable workers.
	underway, away int
}

// newSlotPlan counts the unavailable workers and the steps in progress. If kubelets is true, a cordoned node counts
// as available, because a kubelet is replaced without a drain.
func newSlotPlan(observed cluster.Observation, policy cluster.Policy, budget int, busy []Step, kubelets bool) *slotPlan {
	s := &slotPlan{
		busy: make(map[string]bool, len(busy)), available: make(map[string]bool, len(observed.Nodes)),
	}

	for _, limit := range Bounds(observed, policy) {
		if limit.pool == nil {
			limit.Budget = max(budget, 1)
		}

		s.limits = append(s.limits, &slotLimit{Bound: limit})
	}

	for _, step := range busy {
		s.busy[step.Node] = true

		for _, limit := range s.limits {
			if limit.Covers(step.Node) {
				limit.underway++
			}
		}
	}

	for i := range observed.Nodes {
		node := &observed.Nodes[i]
		there := node.Available() || (kubelets && node.Kube != nil && node.Kube.Ready)

		switch {
		case node.Gone, node.Role != cluster.Worker:
		case there && !s.busy[node.Name]:
			s.available[node.Name] = true
		default:
			for _, limit := range s.limits {
				if limit.Counts(node.Name) {
					limit.away++
				}
			}
		}
	}

	return s
}

// take takes a slot for the worker, if one is left in every bound that covers it.
func (s *slotPlan) take(name string) bool {
	for _, limit := range s.limits {
		if limit.Covers(name) && (limit.underway >= limit.Budget || s.available[name] && limit.away >= limit.Budget) {
			return false
		}
	}

	for _, limit := range s.limits {
		if !limit.Covers(name) {
			continue
		}

		limit.underway++

		if s.available[name] {
			limit.away++
		}
	}

	s.busy[name] = true

	return true
}

// Parallel reports whether other steps of its kind may run beside the step.
func (s Step) Parallel() bool { return s.parallel() }
