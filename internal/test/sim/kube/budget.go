// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"slices"
	"strings"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// budgets remembers what each PodDisruptionBudget allowed at which moment. A
// request is in the audit log after it took effect, when its budget may say
// something else already.
type budgets struct {
	mutex sync.Mutex
	known map[string]*budget
}

type budget struct {
	namespace, name string
	selector        labels.Selector
	// fault is the node whose drain the budget was made to block.
	fault   string
	allowed []allowance
}

type allowance struct {
	since time.Time
	// disruptions may still be taken.
	disruptions int32
}

func newBudgets() *budgets { return &budgets{known: map[string]*budget{}} }

func (b *budget) String() string { return b.namespace + "/" + b.name }

// observe takes a new state of a budget.
func (b *budgets) observe(object *policyv1.PodDisruptionBudget) {
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if err != nil {
		// Such a budget covers nothing, which is what the API server thinks too.
		return
	}

	b.mutex.Lock()
	defer b.mutex.Unlock()

	key := object.Namespace + "/" + object.Name

	known := b.known[key]
	if known == nil {
		known = &budget{namespace: object.Namespace, name: object.Name, fault: object.Labels[labelBlocked]}
		b.known[key] = known
	}

	known.selector = selector

	last := len(known.allowed) - 1
	if last < 0 || known.allowed[last].disruptions != object.Status.DisruptionsAllowed {
		known.allowed = append(known.allowed, allowance{time.Now(), object.Status.DisruptionsAllowed})
		known.allowed = known.allowed[max(0, len(known.allowed)-allowancesKept):]
	}
}

// allowancesKept is how many states of a budget are remembered: more than can
// come about between a request and its line in the audit log.
const allowancesKept = 64

func (b *budgets) remove(object *policyv1.PodDisruptionBudget) {
	b.mutex.Lock()
	defer b.mutex.Unlock()

	delete(b.known, object.Namespace+"/"+object.Name)
}

// exhausted lists the budgets that cover a pod and had nothing to give at the
// moment, sorted.
func (b *budgets) exhausted(namespace string, pod labels.Set, moment time.Time) []*budget {
	b.mutex.Lock()
	defer b.mutex.Unlock()

	var found []*budget

	for _, known := range b.known {
		if known.namespace == namespace && known.selector.Matches(pod) && known.at(moment) <= 0 {
			found = append(found, known)
		}
	}

	slices.SortFunc(found, func(a, b *budget) int { return strings.Compare(a.name, b.name) })

	return found
}

// at is what the budget allowed at the moment; before the first observation it
// is what was observed first.
func (b *budget) at(moment time.Time) int32 {
	allowed := b.allowed[0].disruptions

	for _, later := range b.allowed[1:] {
		if later.since.After(moment) {
			break
		}

		allowed = later.disruptions
	}

	return allowed
}
