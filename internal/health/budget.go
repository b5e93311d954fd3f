// SPDX-License-Identifier: MPL-2.0

package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// cause is why an eviction fails.
type cause int

const (
	// never: the budget allows no eviction even if all its pods are healthy.
	never cause = iota
	// notNow: the budget allows none at the moment, because too few of its pods are healthy or counted.
	notNow
	// overlap: the eviction API refuses a pod that several budgets cover.
	overlap
	// stale: the numbers of the budget describe an earlier state, and the eviction API refuses until they are
	// computed again.
	stale
	// unsynced: the disruption controller cannot compute the numbers, and makes the budget allow no eviction
	// (failSafe in pkg/controller/disruption of Kubernetes).
	unsynced
	// uncounted: a percentage or maxUnavailable counts the pods that controllers want, and no pod of the budget
	// has a controller.
	uncounted
)

// block is a reason why evictions fail: one budget, or several budgets over one pod.
type block struct {
	cause   cause
	budgets []int
	pods    []*cluster.WorkloadPod
	nodes   []string
}

// block records why the eviction of a pod would fail, if it would, by the rules of the eviction API of
// Kubernetes.
func (f *forecast) block(pod *cluster.WorkloadPod, name string) {
	budgets := f.covers[pod.UID]

	switch {
	case len(budgets) == 0:
	case len(budgets) > 1:
		f.note(overlap, budgets, pod, name)
	case f.gives(&f.budgets[budgets[0]], pod):
	default:
		f.note(f.causeOf(budgets[0]), budgets, pod, name)
	}
}

// gives reports whether the budget allows the eviction of the pod now. A pod that is not Ready may be evicted
// without using up the budget if AlwaysAllow is set or enough other pods are healthy.
func (f *forecast) gives(budget *cluster.Budget, pod *cluster.WorkloadPod) bool {
	if !pod.Ready && (budget.AlwaysAllow || (budget.Desired > 0 && budget.Healthy >= budget.Desired)) {
		return true
	}

	return !budget.Stale && budget.Unsynced == "" && budget.Allowed > 0
}

// causeOf returns why a budget allows no eviction. A budget that could never be computed is stale too, but
// waiting does not cure it, so unsynced comes first. Desired is compared with [forecast.most], because Expected
// counts only the existing pods if minAvailable is a number.
func (f *forecast) causeOf(index int) cause {
	budget := &f.budgets[index]

	switch {
	case budget.Unsynced != "":
		return unsynced
	case budget.Stale:
		return stale
	case budget.Expected <= 0 && budget.Desired <= 0 && !f.strength[index].managed:
		return uncounted
	case budget.Desired >= f.most(index):
		return never
	default:
		return notNow
	}
}

// note adds a pod to the block of the given budgets.
func (f *forecast) note(why cause, budgets []int, pod *cluster.WorkloadPod, name string) {
	key := fmt.Sprint(budgets)

	known, found := f.at[key]
	if !found {
		known = &block{cause: why, budgets: budgets}
		f.at[key] = known
		f.blocks = append(f.blocks, known)
	}

	known.pods = append(known.pods, pod)

	// The pods of a node come one after the other.
	if len(known.nodes) == 0 || known.nodes[len(known.nodes)-1] != name {
		known.nodes = append(known.nodes, name)
	}
}

// blocked returns the findings about evictions that fail.
func (f *forecast) blocked() []cluster.Finding {
	var findings []cluster.Finding

	for _, b := range f.blocks {
		if b.cause == notNow && f.ours(b.budgets[0]) {
			continue
		}

		finding := cluster.Finding{
			Check: cluster.CheckDrain, Severity: cluster.Observed, Node: b.nodes[0],
			Unknown: b.cause == stale, Passing: b.cause == stale || b.cause == notNow,
			Found: f.explain(b) + also(b.nodes[1:]), Remedy: f.cure(b),
		}

		if b.cause == notNow && len(f.resumed) > 0 {
			finding.Severity = cluster.Advice
			finding.Remedy = fmt.Sprintf("That may be because an earlier run was stopped while it drained %s: then it passes by itself, and the drain waits for it. If not: %s%s",
				readable.List(f.resumed), strings.ToLower(finding.Remedy[:1]), finding.Remedy[1:])
		}

		if mended := f.mended[b.budgets[0]]; b.cause == notNow && len(mended) > 0 {
			finding.Severity = cluster.Advice
			finding.Remedy = fmt.Sprintf("That may be because %s not Ready, which the roll brings back before the others: the drains of these wait for it. If not: %s%s",
				are(mended), strings.ToLower(finding.Remedy[:1]), finding.Remedy[1:])
		}

		if f.policy.OnTimeout == cluster.DrainDelete {
			finding.Severity, finding.Attribute = cluster.Advice, attributeDrain
			finding.Remedy = fmt.Sprintf("They are deleted after %s without asking, as drain.on_timeout says. To keep what the budget protects: %s%s",
				f.policy.Timeout, strings.ToLower(finding.Remedy[:1]), finding.Remedy[1:])
		}

		findings = append(findings, finding)
	}

	return findings
}

// ours reports whether all pods that a budget misses wait to be scheduled while a cordon of ours stands. It is taken
// away before anything else is drained, and they are back then.
func (f *forecast) ours(index int) bool {
	if len(f.resumed) == 0 {
		return false
	}

	waiting := 0

	for i := range f.pods {
		pod := &f.pods[i]
		if pod.Ready || !slices.Contains(f.covers[pod.UID], index) {
			continue
		}

		if pod.Node != "" {
			return false
		}

		waiting++
	}

	return waiting > 0 && f.budgets[index].Healthy+waiting > f.budgets[index].Desired
}

// are returns the names of nodes with the verb, as the subject of a sentence.
func are(nodes []string) string {
	if len(nodes) == 1 {
		return nodes[0] + " is"
	}

	return readable.List(nodes) + " are"
}

// explain says what prevents the evictions.
func (f *forecast) explain(b *block) string {
	names := make([]string, 0, len(b.budgets))
	for _, index := range b.budgets {
		names = append(names, f.budgets[index].String())
	}

	first := &f.budgets[b.budgets[0]]
	whose := folded(b.pods)

	switch b.cause {
	case overlap:
		return fmt.Sprintf("%s cannot be evicted, because several budgets cover one pod, which the eviction API refuses: %s", whose, readable.List(names))
	case stale:
		return fmt.Sprintf("whether %s can be evicted is not known, because the numbers of budget %s are out of date", whose, first)
	case unsynced:
		return fmt.Sprintf("%s cannot be evicted: budget %s allows no eviction, because its numbers could not be worked out: %s", whose, first, quoted(first.Unsynced))
	case uncounted:
		return fmt.Sprintf("%s cannot be evicted: budget %s counts only pods of controllers, and finds none, so it never allows an eviction", whose, first)
	case never:
		return fmt.Sprintf("%s cannot be evicted: budget %s wants %d healthy of %d pods, so it never allows an eviction", whose, first, first.Desired, f.most(b.budgets[0]))
	case notNow:
		fallthrough
	default:
		return fmt.Sprintf("%s cannot be evicted now: budget %s %s", whose, first, f.lack(b.budgets[0]))
	}
}

// lack says what a budget that allows no eviction now is lacking.
func (f *forecast) lack(index int) string {
	budget := &f.budgets[index]

	switch {
	case budget.Expected <= 0:
		return "has not counted its pods yet"
	case budget.Healthy > budget.Desired:
		return "has just allowed all the evictions that it can"
	}

	text := fmt.Sprintf("wants %d healthy pods, and %d of %d are", budget.Desired, budget.Healthy, f.most(index))
	if unready := f.unready[index]; len(unready) > 0 {
		text += "; not Ready: " + readable.List(unready)
	}

	return text
}

// cure says what a person can do about it.
func (f *forecast) cure(b *block) string {
	first := &f.budgets[b.budgets[0]]

	switch b.cause {
	case overlap:
		return "Change the selectors of the budgets, or delete all but one of them."
	case stale:
		return fmt.Sprintf("See whether the disruption controller runs and what it says (kubectl -n %s describe pdb %s).", first.Namespace, first.Name)
	case unsynced, uncounted:
		return fmt.Sprintf("Set its minAvailable to a number (not a percentage, and not maxUnavailable), or run the pods under a controller with a scale subresource (kubectl -n %s edit pdb %s).", first.Namespace, first.Name)
	case never:
		more := "Run more replicas than the budget wants"
		if owner := b.pods[0].Owner; owner != "" && b.pods[0].Replicas > 0 {
			more = fmt.Sprintf("Run more replicas than the budget wants (%s has %d)", owner, b.pods[0].Replicas)
		}

		return fmt.Sprintf("%s, lower its minAvailable or raise its maxUnavailable (kubectl -n %s edit pdb %s).", more, first.Namespace, first.Name)
	case notNow:
		fallthrough
	default:
		if first.Expected <= 0 || first.Healthy > first.Desired {
			return fmt.Sprintf("Wait until the disruption controller has counted its pods, or see what keeps it from that (kubectl -n %s describe pdb %s).", first.Namespace, first.Name)
		}

		return fmt.Sprintf("Bring its pods back to health first (kubectl -n %s get pods, kubectl -n %s describe pdb %s).", first.Namespace, first.Namespace, first.Name)
	}
}

// quoted returns foreign text on one line, clipped and without a full stop.
func quoted(text string) string {
	const most = 200

	text = strings.TrimRight(strings.Join(strings.Fields(text), " "), ".")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}

	return text
}

// folded lists pods, with those of one controller folded as "3 pods of ReplicaSet/web (such as shop/web-1)".
func folded(pods []*cluster.WorkloadPod) string {
	var owners []string

	example, count := map[string]string{}, map[string]int{}

	for _, pod := range pods {
		key := pod.Namespace + " " + pod.Owner
		if pod.Owner == "" {
			key = pod.String()
		}

		if count[key] == 0 {
			owners, example[key] = append(owners, key), pod.String()
		}

		count[key]++
	}

	texts := make([]string, 0, len(owners))

	for _, key := range owners {
		if _, owner, _ := strings.Cut(key, " "); count[key] > 1 {
			texts = append(texts, fmt.Sprintf("%d pods of %s (such as %s)", count[key], owner, example[key]))
		} else {
			texts = append(texts, "pod "+example[key])
		}
	}

	return readable.List(texts)
}

// also lists the other nodes that a finding is about.
func also(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}

	return "; the same on " + readable.List(nodes)
}
