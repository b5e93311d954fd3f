// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The names of the provider's objects, as in the annotation protocol and the design.
const (
	namespaceSystem  = "kube-system"
	leaseName        = "talosupgrade"
	journalName      = "talosupgrade-journal"
	annotationPrefix = "upgrade.vitistack.io/"
)

// ledger remembers the last state that clients wrote, so that the history contains changes instead of requests.
// Only the reader of the audit log calls take, one event after the other. It must not ask the model anything,
// because the model may be waiting for it.
type ledger struct {
	recorder history.Recorder
	budgets  *budgets
	// became checks a request that failed: it may have taken effect.
	became func(auditEvent) (settled auditEvent, ok bool)
	// management is true if the cluster is not the upgraded one.
	management bool

	// cordoned holds the nodes that are unschedulable.
	cordoned map[string]bool
	holder   string
	renewed  string
	// journal holds the values by key.
	journal map[string]string
	// annotations holds the keys of the protocol by object, statuses the status of custom resources.
	annotations map[string]map[string]noted
	statuses    map[string]status
	// struck holds the faults that are already in the history.
	struck map[*budget]bool

	mutex sync.Mutex
	// pods holds where each pod that was ever seen runs, machines the name of each node by the keys that the
	// journal may have for it: its machine ID or the UUID of its hardware. The name is empty for a UUID that
	// several nodes have.
	pods     map[string]podPlace
	machines map[string]string
	// elsewhere waits until what was answered on another cluster is in the history; nil if there is none.
	elsewhere func()
	// nodes are those that clients changed while following.
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

// newManagementLedger returns the ledger of a cluster whose nodes, leases and journals, if it has any, do not
// belong to the upgraded cluster.
func newManagementLedger(recorder history.Recorder) *ledger {
	made := newLedger(recorder)
	made.management = true

	return made
}

// observePod remembers a pod for the time when a client removes it.
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

// machineName returns the node that the journal has under the key; empty if there is none.
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

// take turns a completed request into history. What a client changed counts, whatever the answer was.
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

// told records a successful request by its own kind of event. It returns false if it has none.
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

// customWritten records what changed on a custom resource: its annotations or, only through the subresource, its
// status.
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

// wrote records a request that failed, or that has no kind of event of its own.
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

// nodeWritten records a cordon that changed.
func (l *ledger) nodeWritten(event auditEvent) bool {
	name := event.name()

	if event.Verb == "delete" {
		delete(l.cordoned, name)

		return false
	}

	// A request for the metadata only, as for a claim, has written nothing else.
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

// The actions on the lease in the history.
const (
	leaseAcquired = "acquire"
	leaseRenewed  = "renew"
	leaseReleased = "release"
)

// change is a key of a map whose value has changed; the value is empty if the key is gone.
type change struct{ key, value string }

// changesBetween lists the differences, sorted by key.
func changesBetween(before, now map[string]string) []change {
	keys := map[string]bool{}
	for key := range before {
		keys[key] = true
	}

	for key := range now {
		keys[key] = true
	}

	var changes []change

	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, had := before[key]

		value, has := now[key]
		if had != has || old != value {
			changes = append(changes, change{key, value})
		}
	}

	return changes
}

// leaseWritten records who holds the lease now. A request that changed neither holder nor time is not recorded.
func (l *ledger) leaseWritten(event auditEvent) bool {
	var holder, renewed string

	if event.Verb != "delete" {
		object := event.object()
		holder, renewed = object.Spec.HolderIdentity, object.Spec.RenewTime
	}

	action := leaseRenewed

	// Each cluster has a log of its own, and the lease is released after everything else.
	if holder != l.holder {
		l.awaitElsewhere()
	}

	switch {
	case holder == l.holder && (renewed == l.renewed || holder == ""):
		return false
	case holder == "":
		action = leaseReleased
	case holder != l.holder:
		action = leaseAcquired
	}

	l.holder, l.renewed = holder, renewed
	l.recorder.Record("", history.KindLease, map[string]string{"holder": holder, "action": action, "by": event.by()})

	return true
}

func (l *ledger) awaitElsewhere() {
	l.mutex.Lock()
	wait := l.elsewhere
	l.mutex.Unlock()

	if wait != nil {
		wait()
	}
}

// journalWritten records each entry that changed. It knows only the two fields of the format that the history
// names.
func (l *ledger) journalWritten(event auditEvent) bool {
	var now map[string]string

	switch object := event.object(); {
	case event.Verb == "delete":
	case object.Kind == "Table":
		// The client did not ask for the object in the answer.
		now = event.dataOver(l.journal)
	default:
		now = object.Data
	}

	changes := changesBetween(l.journal, now)
	for _, change := range changes {
		written, run := change.value, journalRun(change.value)
		if written == "" {
			run = journalRun(l.journal[change.key])
		}

		node := l.machineName(change.key)
		l.touch(event, node)
		l.recorder.Record(node, history.KindJournal, map[string]string{
			"key": change.key, "phase": journalPhase(written), "run": run, "value": written, "by": event.by(),
		})
	}

	l.journal = now

	return len(changes) > 0
}

func journalPhase(value string) string {
	phase, _ := journalFields(value)

	return phase
}

func journalRun(value string) string {
	_, run := journalFields(value)

	return run
}

func journalFields(value string) (phase, run string) {
	var entry struct {
		Phase string `json:"phase"`
		Run   string `json:"run"`
	}

	// A value that cannot be parsed has neither; the history has it as it is.
	if json.Unmarshal([]byte(value), &entry) != nil {
		return "", ""
	}

	return entry.Phase, entry.Run
}

// deleted records a pod that a client removed without asking its budgets.
func (l *ledger) deleted(event auditEvent) {
	namespace, name := event.ObjectRef.Namespace, event.name()
	pod := l.place(namespace, name)
	detail := map[string]string{"namespace": namespace, "pod": name, "by": event.by()}

	l.touch(event, pod.node)

	if exhausted := l.budgets.exhausted(namespace, pod.labels, event.Received); len(exhausted) > 0 {
		detail["budget"] = exhausted[0].String()
	}

	l.recorder.Record(pod.node, history.KindDelete, detail)
}

// evicted records how an eviction ended.
func (l *ledger) evicted(event auditEvent) {
	namespace, name := event.ObjectRef.Namespace, event.name()
	pod := l.place(namespace, name)
	outcome := evictionOutcome(event)

	if outcome == outcomeEvicted {
		l.touch(event, pod.node)
	}

	detail := map[string]string{"namespace": namespace, "pod": name, "by": event.by(), "outcome": outcome}

	if outcome == outcomeFailed {
		detail["code"] = strconv.Itoa(int(event.ResponseStatus.Code))
	}

	if outcome == outcomeBlocked {
		exhausted := l.budgets.exhausted(namespace, pod.labels, event.Received)
		if len(exhausted) > 0 {
			detail["budget"] = exhausted[0].String()
		} else {
			detail["budget"] = budgetNamed(namespace, event)
		}

		l.strike(pod.node, exhausted)
	}

	l.recorder.Record(pod.node, history.KindEvict, detail)
}

// strike records, once, a fault that has blocked a drain.
func (l *ledger) strike(node string, exhausted []*budget) {
	for _, budget := range exhausted {
		if budget.fault == "" || l.struck[budget] {
			continue
		}

		l.struck[budget] = true
		l.recorder.Record(node, history.KindFault, map[string]string{
			"step": "drain", "effect": "blocked-by-budget", "info": budget.String(),
		})
	}
}

// The outcomes of an eviction. The API server answers 500 for a pod with more than one budget, which no retry
// solves.
const (
	outcomeEvicted = "evicted"
	outcomeBlocked = "blocked"
	outcomeGone    = "gone"
	outcomeDryRun  = "dry-run"
	outcomeFailed  = "failed"
)

func evictionOutcome(event auditEvent) string {
	status := event.ResponseStatus

	switch {
	case event.dryRun():
		return outcomeDryRun
	case event.succeeded():
		return outcomeEvicted
	case status.Code == http.StatusTooManyRequests && blockedByBudget(event) != nil:
		return outcomeBlocked
	case status.Code == http.StatusNotFound,
		// Another pod has the name: the one that was meant is gone.
		status.Code == http.StatusConflict && strings.Contains(status.Message, "UID"):
		return outcomeGone
	default:
		return outcomeFailed
	}
}

// blockedByBudget returns the cause that the API server gives if it answers 429 because of a budget and not because
// of the load.
func blockedByBudget(event auditEvent) *metav1.StatusCause {
	if event.ResponseStatus.Details == nil {
		return nil
	}

	for _, cause := range event.ResponseStatus.Details.Causes {
		if cause.Type == policyv1.DisruptionBudgetCause {
			return &cause
		}
	}

	return nil
}

// budgetNamed returns the name in the API server's message: "The disruption budget NAME needs 2 healthy pods and
// has 2 currently".
func budgetNamed(namespace string, event auditEvent) string {
	cause := blockedByBudget(event)
	if cause == nil {
		return ""
	}

	_, rest, _ := strings.Cut(cause.Message, "disruption budget ")
	name, _, _ := strings.Cut(rest, " ")

	return namespace + "/" + name
}

// noted is a key of the protocol on an object, as of a resource version.
type noted struct {
	value   string
	stands  bool
	version uint64
}

// annotated records each key of the protocol that a request changed on an object. For a patch, it considers only
// the keys in the patch: other differences in the resulting object were written by others, and are recorded when
// their own line is read. Lines may be read in another order than the writes were done.
func (l *ledger) annotated(event auditEvent) bool {
	name, object := objectName(event), event.object()
	known := l.annotations[name]

	if event.Verb == "delete" {
		delete(l.annotations, name)

		return l.tellAnnotations(event, name, changesBetween(standing(known), nil))
	}

	now := protocolKeys(object.Metadata.Annotations)

	asked, partial := patchedKeys(event)
	if !partial {
		asked = slices.Concat(slices.Collect(maps.Keys(standing(known))), slices.Collect(maps.Keys(now)))
	}

	if known == nil {
		known = map[string]noted{}
		l.annotations[name] = known
	}

	before, after := map[string]string{}, map[string]string{}
	version := object.version()

	for _, key := range asked {
		was := known[key]
		if version < was.version {
			continue
		}

		value, stands := now[key]
		known[key] = noted{value, stands, version}

		if was.stands {
			before[key] = was.value
		}

		if stands {
			after[key] = value
		}
	}

	return l.tellAnnotations(event, name, changesBetween(before, after))
}

func (l *ledger) tellAnnotations(event auditEvent, name string, changes []change) bool {
	node := ""
	if event.ObjectRef.Resource == "nodes" {
		node = event.name()
	}

	for _, change := range changes {
		l.recorder.Record(node, history.KindAnnotation, map[string]string{
			"object": name, "key": change.key, "value": change.value, "by": event.by(),
		})
	}

	return len(changes) > 0
}

// standing returns the values that an object has.
func standing(known map[string]noted) map[string]string {
	values := map[string]string{}

	for key, noted := range known {
		if noted.stands {
			values[key] = noted.value
		}
	}

	return values
}

// protocolKeys returns the annotations of the protocol, without their prefix.
func protocolKeys(annotations map[string]string) map[string]string {
	keys := map[string]string{}

	for key, value := range annotations {
		if short, ours := strings.CutPrefix(key, annotationPrefix); ours {
			keys[short] = value
		}
	}

	return keys
}

// patchedKeys returns the keys of the protocol in a patch. partial is false if the request writes the whole object
// or cannot be parsed.
func patchedKeys(event auditEvent) (keys []string, partial bool) {
	if event.Verb != "patch" {
		return nil, false
	}

	var body struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"annotations"`
		} `json:"metadata"`
	}

	if json.Unmarshal(event.RequestObject, &body) != nil {
		return nil, false
	}

	for key := range body.Metadata.Annotations {
		if short, ours := strings.CutPrefix(key, annotationPrefix); ours {
			keys = append(keys, short)
		}
	}

	return keys, true
}

// objectName returns a name such as "KubernetesCluster/tenant-a/prod".
func objectName(event auditEvent) string {
	kind := map[string]string{
		"nodes": "Node", "configmaps": "ConfigMap", "kubernetesclusters": "KubernetesCluster",
		"taloscontrolplanes": "TalosControlPlane", "talosworkers": "TalosWorker", "talosmachines": "TalosMachine",
	}[event.ObjectRef.Resource]

	return strings.Join([]string{kind, event.ObjectRef.Namespace, event.name()}, "/")
}

// resultStatus is the part of the status of a custom resource that the history records.
type resultStatus struct {
	Phase      string            `json:"phase"`
	State      string            `json:"state"`
	Message    string            `json:"message"`
	Conditions []resultCondition `json:"conditions"`
}

type resultCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// status is what is known about the status of an object, as of a resource version.
type status struct {
	fields     map[string]string
	conditions map[string]resultCondition
	version    uint64
}

func newStatus(object resultObject) status {
	told := object.Status
	made := status{
		fields:     map[string]string{"phase": told.Phase, "state": told.State, "message": told.Message},
		conditions: map[string]resultCondition{},
		version:    object.version(),
	}

	maps.DeleteFunc(made.fields, func(_, value string) bool { return value == "" })

	for _, condition := range told.Conditions {
		made.conditions[condition.Type] = condition
	}

	return made
}

// statusWritten records what a request changed in a status. A line that is read after that of a later write is
// ignored.
func (l *ledger) statusWritten(event auditEvent) bool {
	name := objectName(event)
	before, now := l.statuses[name], newStatus(event.object())

	if now.version < before.version {
		return false
	}

	l.statuses[name] = now

	changes := changesBetween(before.fields, now.fields)
	for _, change := range changes {
		l.recorder.Record("", history.KindStatus, map[string]string{
			"object": name, "field": change.key, "value": change.value, "by": event.by(),
		})
	}

	return l.conditionsChanged(event, before, now) || len(changes) > 0
}

func (l *ledger) conditionsChanged(event auditEvent, before, now status) bool {
	types := map[string]bool{}
	for kind := range before.conditions {
		types[kind] = true
	}

	for kind := range now.conditions {
		types[kind] = true
	}

	changed := false

	for _, kind := range slices.Sorted(maps.Keys(types)) {
		condition := now.conditions[kind]
		if condition == before.conditions[kind] {
			continue
		}

		changed = true

		l.recorder.Record("", history.KindStatus, map[string]string{
			"object": objectName(event), "condition": kind,
			"status": condition.Status, "reason": condition.Reason, "message": condition.Message, "by": event.by(),
		})
	}

	return changed
}

// UnmarshalJSON decodes a status that may have any shape.
func (s *resultStatus) UnmarshalJSON(text []byte) error {
	type plain resultStatus

	// The status of a Node or of a failed request has another shape.
	if json.Unmarshal(text, (*plain)(s)) != nil {
		*s = resultStatus{}
	}

	return nil
}
