// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The objects of the provider, by what the annotation protocol and the design
// call them.
const (
	namespaceSystem  = "kube-system"
	leaseName        = "talosupgrade"
	journalName      = "talosupgrade-journal"
	annotationPrefix = "upgrade.vitistack.io/"
)

// ledger keeps what clients left behind the last time, so that the history
// tells of changes instead of requests. Only the reader of the audit log calls
// take, one event after the other. It must not ask the model anything: the
// model may be waiting for it.
type ledger struct {
	recorder history.Recorder
	budgets  *budgets
	// became looks into a request that failed: it may have taken effect.
	became func(auditEvent) (settled auditEvent, ok bool)
	// management tells that it is not the upgraded cluster that is written.
	management bool

	// cordoned holds the nodes that are unschedulable.
	cordoned map[string]bool
	holder   string
	renewed  string
	// journal holds the values by key.
	journal map[string]string
	// annotations holds the keys of the protocol by object, statuses the status of
	// custom resources.
	annotations map[string]map[string]noted
	statuses    map[string]status
	// struck holds the faults that the history has told of.
	struck map[*budget]bool

	mutex sync.Mutex
	// pods holds where each pod that was ever seen runs, machines the name of
	// each node by what the journal may call it: its machine ID or the UUID of its
	// hardware. It is empty for a UUID that several have.
	pods     map[string]podPlace
	machines map[string]string
	// elsewhere waits until what was answered on another cluster is in the history;
	// nil where there is none.
	elsewhere func()
	// nodes are those that clients touched, while following.
	following bool
	nodes     []string
}

type podPlace struct {
	node   string
	labels labels.Set
}

func newLedger(recorder history.Recorder) *ledger {
	return &ledger{
		recorder: recorder, budgets: newBudgets(),
		cordoned:    map[string]bool{},
		journal:     map[string]string{},
		annotations: map[string]map[string]noted{},
		statuses:    map[string]status{},
		struck:      map[*budget]bool{},
		pods:        map[string]podPlace{},
		machines:    map[string]string{},
	}
}

// newManagementLedger is for a cluster whose nodes, leases and journals, if it has
// any, are none of the upgraded cluster's.
func newManagementLedger(recorder history.Recorder) *ledger {
	made := newLedger(recorder)
	made.management = true

	return made
}

// observePod remembers a pod, for when a client removes it.
func (l *ledger) observePod(pod *corev1.Pod) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	l.pods[pod.Namespace+"/"+pod.Name] = podPlace{pod.Spec.NodeName, pod.Labels}
}

// observeNode remembers which machine a node is, for the journal.
func (l *ledger) observeNode(node *corev1.Node) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	for _, key := range []string{node.Status.NodeInfo.MachineID, node.Status.NodeInfo.SystemUUID} {
		if name, taken := l.machines[key]; taken && name != node.Name {
			l.machines[key] = ""
		} else {
			l.machines[key] = node.Name
		}
	}
}

// machineName is the node that the journal knows under the key; empty where there
// is none.
func (l *ledger) machineName(key string) string {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	return l.machines[key]
}

func (l *ledger) place(namespace, name string) podPlace {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	return l.pods[namespace+"/"+name]
}

// take turns a completed request into history. What a client left behind counts,
// whatever it was answered.
func (l *ledger) take(event auditEvent) {
	eviction := !l.management && event.resource() == "pods/eviction" && event.Verb == "create"

	switch {
	case eviction:
		l.evicted(event)
	case event.dryRun():
	case event.succeeded():
		if !l.told(event) {
			l.wrote(event)
		}
	default:
		if settled, ok := l.became(event); !ok || !l.told(settled) {
			l.wrote(event)
		}
	}
}

// told records what a successful request means; false when it means nothing
// that has a kind of its own.
func (l *ledger) told(event auditEvent) bool {
	ref := event.ObjectRef
	system := ref.Namespace == namespaceSystem

	switch resource := event.resource(); {
	case slices.Contains(customGroups(), ref.APIGroup):
		return l.customWritten(event)
	case l.management:
		return resource == "configmaps" && l.annotated(event)
	case resource == "pods" && event.Verb == "delete":
		l.deleted(event)

		return true
	case resource == "nodes":
		l.touch(event, event.name())

		cordoned := l.nodeWritten(event)

		return l.annotated(event) || cordoned
	case resource == "leases" && system && event.name() == leaseName:
		return l.leaseWritten(event)
	case resource == "configmaps" && system && event.name() == journalName:
		return l.journalWritten(event)
	case resource == "configmaps":
		return l.annotated(event)
	default:
		return false
	}
}

// customWritten tells of what changed on a custom resource: its annotations or, by
// way of the subresource alone, its status.
func (l *ledger) customWritten(event auditEvent) bool {
	switch {
	case event.ObjectRef.Subresource == "status":
		return l.statusWritten(event)
	case event.ObjectRef.Subresource != "":
		return false
	case event.Verb == "delete":
		delete(l.statuses, objectName(event))
	}

	return l.annotated(event)
}

// wrote is the record of a request that has no kind of its own, or failed.
func (l *ledger) wrote(event auditEvent) {
	node := ""
	detail := map[string]string{
		"verb": event.Verb, "resource": event.resource(),
		"namespace": event.ObjectRef.Namespace, "name": event.name(),
		"by": event.by(), "code": strconv.Itoa(int(event.ResponseStatus.Code)),
	}

	switch {
	case l.management:
		detail["cluster"] = managementName
	case event.ObjectRef.Resource == "nodes":
		node = event.name()
	case event.ObjectRef.Resource == "pods":
		node = l.place(event.ObjectRef.Namespace, event.name()).node
	}

	l.recorder.Record(node, history.KindWrite, detail)
}

// nodeWritten tells of a cordon that changed.
func (l *ledger) nodeWritten(event auditEvent) bool {
	name := event.name()

	if event.Verb == "delete" {
		delete(l.cordoned, name)

		return false
	}

	// Who asked for the metadata alone, as for a claim, has written nothing else.
	object := event.object()
	if object.Kind == "PartialObjectMetadata" {
		return false
	}

	cordoned := object.Spec.Unschedulable
	if cordoned == l.cordoned[name] {
		return false
	}

	l.cordoned[name] = cordoned
	l.recorder.Record(name, history.KindCordon, map[string]string{
		"unschedulable": strconv.FormatBool(cordoned), "by": event.by(),
	})

	return true
}
