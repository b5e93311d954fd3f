// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
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

	// cordoned holds the nodes that are unschedulable.
	cordoned map[string]bool
	holder   string
	renewed  string
	// journal holds the values by machine UUID.
	journal map[string]string
	// annotations holds our keys by object.
	annotations map[string]map[string]string
	// struck holds the faults that the history has told of.
	struck map[*budget]bool

	mutex sync.Mutex
	// pods holds where each pod that was ever seen runs, machines the name of
	// each node by its UUID.
	pods     map[string]podPlace
	machines map[string]string
	// nodes are those that clients touched, while following.
	following bool
	nodes     []string
}

type podPlace struct {
	node   string
	labels labels.Set
}

func newLedger(options Options, budgets *budgets) *ledger {
	return &ledger{
		recorder: options.Recorder, budgets: budgets,
		cordoned:    map[string]bool{},
		journal:     map[string]string{},
		annotations: map[string]map[string]string{},
		struck:      map[*budget]bool{},
		pods:        map[string]podPlace{},
		machines:    map[string]string{},
	}
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

	l.machines[node.Status.NodeInfo.SystemUUID] = node.Name
}

// machineName is the node with the UUID; empty when there is none.
func (l *ledger) machineName(uuid string) string {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	return l.machines[uuid]
}

func (l *ledger) place(namespace, name string) podPlace {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	return l.pods[namespace+"/"+name]
}

// take turns a completed request into history.
func (l *ledger) take(event auditEvent) {
	eviction := event.resource() == "pods/eviction" && event.Verb == "create"

	switch {
	case eviction:
		l.evicted(event)
	case event.dryRun():
	case !event.succeeded(), !l.told(event):
		l.wrote(event)
	}
}

// told records what a successful request means; false when it means nothing
// that has a kind of its own.
func (l *ledger) told(event auditEvent) bool {
	ref := event.ObjectRef
	system := ref.Namespace == namespaceSystem

	switch resource := event.resource(); {
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
	case resource == "configmaps", ref.Resource == "kubernetesclusters":
		return l.annotated(event)
	default:
		return false
	}
}

// wrote is the record of a request that has no kind of its own, or failed.
func (l *ledger) wrote(event auditEvent) {
	node := ""

	switch event.ObjectRef.Resource {
	case "nodes":
		node = event.name()
	case "pods":
		node = l.place(event.ObjectRef.Namespace, event.name()).node
	}

	l.recorder.Record(node, history.KindWrite, map[string]string{
		"verb": event.Verb, "resource": event.resource(),
		"namespace": event.ObjectRef.Namespace, "name": event.name(),
		"by": event.by(), "code": strconv.Itoa(int(event.ResponseStatus.Code)),
	})
}

// nodeWritten tells of a cordon that changed.
func (l *ledger) nodeWritten(event auditEvent) bool {
	name := event.name()

	if event.Verb == "delete" {
		delete(l.cordoned, name)

		return false
	}

	cordoned := event.object().Spec.Unschedulable
	if cordoned == l.cordoned[name] {
		return false
	}

	l.cordoned[name] = cordoned
	l.recorder.Record(name, history.KindCordon, map[string]string{
		"unschedulable": strconv.FormatBool(cordoned), "by": event.by(),
	})

	return true
}

// annotated tells of each key of the protocol that changed on an object.
func (l *ledger) annotated(event auditEvent) bool {
	object := event.object()
	kind := map[string]string{
		"nodes": "Node", "configmaps": "ConfigMap", "kubernetesclusters": "KubernetesCluster",
	}[event.ObjectRef.Resource]
	name := strings.Join([]string{kind, event.ObjectRef.Namespace, event.name()}, "/")
	now := map[string]string{}

	if event.Verb != "delete" {
		for key, value := range object.Metadata.Annotations {
			if short, ours := strings.CutPrefix(key, annotationPrefix); ours {
				now[short] = value
			}
		}
	}

	node := ""
	if kind == "Node" {
		node = event.name()
	}

	before := l.annotations[name]
	l.annotations[name] = now

	changes := changesBetween(before, now)
	for _, change := range changes {
		l.recorder.Record(node, history.KindAnnotation, map[string]string{
			"object": name, "key": change.key, "value": change.value, "by": event.by(),
		})
	}

	return len(changes) > 0
}
