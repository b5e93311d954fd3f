// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	// graceTime is how long a pod takes to stop, startTime to become ready.
	graceTime = 3137 * time.Millisecond
	startTime = 5237 * time.Millisecond
	// namespaceWorkload is where the workloads are.
	namespaceWorkload = "workload"
	// labelApp is the label by which budgets select pods.
	labelApp = "app"
)

// PodSpec is a pod that a test wants.
type PodSpec struct {
	// App is the app that the pod belongs to. A budget covers all pods of an app.
	App string
	// Node is where the pod starts; if empty, the cluster chooses.
	Node string
	// Fits are the nodes that it can run on; nil means all that take workloads.
	Fits []string
	// Unmanaged pods are not replaced when they are removed.
	Unmanaged bool
	// LocalData names volumes whose content is lost with the pod.
	LocalData []string
	// CPU is what the pod requests in thousandths of a core, Memory in bytes.
	CPU, Memory int64
	// NotReady pods run, but never serve.
	NotReady bool
	// Volume is the volume to which it has a claim; empty for none.
	Volume string
}

// workload is one pod of a workload. Its controller starts another one for each that is removed.
type workload struct {
	PodSpec

	name string
	// node is empty while no node takes the pod.
	node string
	// readyAt is when it is ready on its node; goneAt, if not zero, is when it has stopped.
	readyAt, goneAt time.Time
	// bound pods can run only on this node, and nothing replaces them.
	bound bool
	// shown is what the Pod object shows.
	shown shownPod
}

// shownPod is the part of a pod that changes.
type shownPod struct {
	made, ready bool
	node        string
	gone        time.Time
}

func uidOf(pod string) types.UID { return types.UID("uid-" + pod) }

// Budget is a PodDisruptionBudget over the pods of one app.
type Budget struct {
	App string
	// Name is that of the app if empty.
	Name string
	// MinAvailable is how many of its pods must stay ready.
	MinAvailable int
	// Stale budgets have numbers that were never computed. They allow no disruption.
	Stale bool
	// Unsynced is why the numbers cannot be computed any more: the budget allows no disruption, and the other
	// numbers are from before. It is empty if they can.
	Unsynced string
	// AlwaysAllow lets pods go that are not ready, whatever the numbers are.
	AlwaysAllow bool
}

// String returns the name in the history.
func (b *Budget) String() string { return namespaceWorkload + "/" + b.name() }

func (b *Budget) name() string { return cmp.Or(b.Name, b.App) }

// AddApp starts pods of an app, ready at once and spread over the workers, or over all nodes if there are none. If
// budget is not nil, it covers them.
func (s *Server) AddApp(app string, replicas int, budget *Budget) {
	s.lock()
	defer s.mu.Unlock()

	s.cover(app, budget)

	for range replicas {
		s.startPod(PodSpec{App: app}, s.place(PodSpec{App: app}), s.now())
	}
}

// AddPod starts one pod of an app on the given node and no other.
func (s *Server) AddPod(app, node string, budget *Budget) {
	s.lock()
	defer s.mu.Unlock()

	s.cover(app, budget)
	s.startPod(PodSpec{App: app, Fits: []string{node}}, node, s.now()).bound = true
}

// StartPod starts one pod, ready at once unless it never is, and returns its name. The pod waits if no node takes
// it.
func (s *Server) StartPod(spec PodSpec) string {
	s.lock()
	defer s.mu.Unlock()

	spec.Fits, spec.LocalData = slices.Clone(spec.Fits), slices.Clone(spec.LocalData)

	node := spec.Node
	if node == "" {
		node = s.place(spec)
	}

	return s.startPod(spec, node, s.now()).name
}

// AddBudget adds a budget over the pods of an app.
func (s *Server) AddBudget(budget Budget) {
	s.lock()
	defer s.mu.Unlock()

	s.cover(budget.App, &budget)
}

// RemoveBudget removes all budgets of an app.
func (s *Server) RemoveBudget(app string) {
	s.lock()
	defer s.mu.Unlock()

	s.budgets = slices.DeleteFunc(s.budgets, func(b *Budget) bool { return b.App == app })
}

// cover adds a budget over the pods of an app, unless it is nil.
func (s *Server) cover(app string, budget *Budget) {
	if budget == nil {
		return
	}

	added := *budget
	added.App = app
	s.budgets = append(s.budgets, &added)
}

// What a node has for pods unless a test says otherwise.
const (
	usualCPU    = 4000
	usualMemory = 8 << 30
	usualPods   = 110
)

// SetRoom sets what a node has for pods, whatever runs there: CPU in thousandths of a core and memory in bytes. By
// default that is 4 cores, 8 GiB and 110 pods.
func (s *Server) SetRoom(room cluster.Room) {
	s.lock()
	defer s.mu.Unlock()

	s.rooms[room.Node] = room
}

func (s *Server) room(node string) cluster.Room {
	if room, set := s.rooms[node]; set {
		return room
	}

	return cluster.Room{Node: node, CPU: usualCPU, Memory: usualMemory, Pods: usualPods}
}

func (s *Server) startPod(spec PodSpec, node string, ready time.Time) *workload {
	s.started++
	started := &workload{PodSpec: spec, name: fmt.Sprintf("%s-%d", spec.App, s.started), node: node, readyAt: ready}
	s.workloads = append(s.workloads, started)

	return started
}

// place returns the node with the fewest pods that takes a pod like that; empty if none does.
func (s *Server) place(spec PodSpec) string {
	best, fewest := "", 0

	for _, name := range s.fits(spec) {
		if node := s.core(resourceNodes).objects[key{name: name}]; !s.kubelets[name].ready || cordonOf(node).Unschedulable {
			continue
		}

		count, room := 0, s.room(name)

		for _, p := range s.workloads {
			if p.node == name {
				count++
				room.CPU -= p.CPU
				room.Memory -= p.Memory
			}
		}

		if room.CPU < spec.CPU || room.Memory < spec.Memory || room.Pods <= int64(count) {
			continue
		}

		if best == "" || count < fewest {
			best, fewest = name, count
		}
	}

	return best
}

// fits lists the nodes on which a pod like that can run, regardless of cordons and room, in the order of the
// machines.
func (s *Server) fits(spec PodSpec) []string {
	var fits []string

	workers := s.world.Has(model.Worker)

	for _, state := range s.world.KubeStates() {
		takes := !workers || state.Role == model.Worker
		if spec.Fits != nil {
			takes = slices.Contains(spec.Fits, state.Name)
		}

		if takes && s.kubelets[state.Name] != nil {
			fits = append(fits, state.Name)
		}
	}

	return fits
}

// showWorkloads updates the pods of workloads, their budgets and their controllers.
func (s *Server) showWorkloads() {
	s.block()
	s.settle()

	of := s.core(resourcePods)
	replicas := map[string]int{}

	for _, p := range s.workloads {
		switch {
		case p.Unmanaged:
		case p.goneAt.IsZero():
			replicas[p.App]++
		default:
			// The controller exists as long as the pod.
			replicas[p.App] = max(0, replicas[p.App])
		}

		shown := shownPod{made: true, ready: s.serves(p), node: p.node}
		if !p.goneAt.IsZero() {
			shown.gone = s.stamp(p.goneAt).Time
		}

		if shown != p.shown {
			p.shown = shown
			s.commit(itself(), of, p.object())
		}
	}

	s.showVolumes()
	s.showBudgets()
	s.showReplicaSets(replicas)
}

// settle removes the pods that have stopped and places those that wait.
func (s *Server) settle() {
	now := s.now()

	for _, p := range s.workloads {
		since, unable := s.kubelets[p.node].unable()
		if unable && !p.goneAt.IsZero() && p.goneAt.After(since) {
			// Only a kubelet of a node that is ready confirms that a pod has stopped.
			p.goneAt = now.Add(graceTime)
		}
	}

	s.workloads = slices.DeleteFunc(s.workloads, func(p *workload) bool {
		gone := !p.goneAt.IsZero() && !now.Before(p.goneAt)
		if gone {
			s.drop(itself(), s.core(resourcePods), key{namespaceWorkload, p.name})
		}

		return gone
	})

	for _, p := range s.workloads {
		if p.node == "" && !p.bound {
			if node := s.place(p.PodSpec); node != "" {
				p.node, p.readyAt = node, now.Add(startTime)
			}
		}
	}
}

// release makes pods wait for another node.
func (s *Server) release(node string) {
	for _, p := range s.workloads {
		if p.node == node && !p.bound {
			p.node = ""
		}
	}
}

// blockerName returns the name of the app, and of the pod, of the fault "a budget blocks the drain".
func blockerName(node string) string { return "blocks-drain-of-" + node }

// block keeps the pods and budgets of that fault while it is in force: one on each node, until somebody deletes it
// all the same.
func (s *Server) block() {
	faults := s.world.FaultsFor(model.StepDrain)

	for _, name := range s.names() {
		app := blockerName(name)
		standing := slices.ContainsFunc(s.budgets, func(b *Budget) bool { return b.App == app })
		scripted := s.kubelets[name] != nil && slices.ContainsFunc(faults, func(f model.Fault) bool {
			return f.Effect == model.EffectBlockedByBudget && (f.Node == name || f.Node == model.AnyNode)
		})

		if !scripted {
			delete(s.struck, name)
		}

		switch wanted := scripted && !s.struck[name]; {
		case wanted && !standing:
			s.cover(app, &Budget{MinAvailable: 1})
			s.workloads = append(s.workloads, &workload{PodSpec: PodSpec{App: app}, name: app, node: name, bound: true})
		case !wanted && standing:
			s.budgets = slices.DeleteFunc(s.budgets, func(b *Budget) bool { return b.App == app })
			s.workloads = slices.DeleteFunc(s.workloads, func(p *workload) bool {
				if p.name == app {
					s.drop(itself(), s.core(resourcePods), key{namespaceWorkload, app})
				}

				return p.name == app
			})
		}
	}
}

// names returns the names of the nodes that exist, and of those that the fault has struck.
func (s *Server) names() []string {
	names := slices.Collect(maps.Keys(s.kubelets))

	for _, budget := range s.budgets {
		if node, blocks := strings.CutPrefix(budget.App, blockerName("")); blocks {
			names = append(names, node)
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// serves reports whether a pod is ready.
func (s *Server) serves(p *workload) bool {
	known := s.kubelets[p.node]

	return p.goneAt.IsZero() && !p.NotReady && known != nil && known.ready && !s.now().Before(p.readyAt)
}

// healthy returns how many pods of an app are ready.
func (s *Server) healthy(app string) int {
	count := 0

	for _, p := range s.workloads {
		if p.App == app && s.serves(p) {
			count++
		}
	}

	return count
}

// object returns the pod as the API shows it.
func (p *workload) object() *corev1.Pod {
	container := corev1.Container{Name: "main", Image: "example.org/" + p.App + ":1"}

	if p.CPU > 0 || p.Memory > 0 {
		container.Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    *apiresource.NewMilliQuantity(p.CPU, apiresource.DecimalSI),
			corev1.ResourceMemory: *apiresource.NewQuantity(p.Memory, apiresource.BinarySI),
		}
	}

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceWorkload, Name: p.name, UID: uidOf(p.name), Labels: map[string]string{labelApp: p.App},
		},
		Spec: corev1.PodSpec{NodeName: p.shown.node, Containers: []corev1.Container{container}},
	}

	if !p.Unmanaged {
		pod.OwnerReferences = []metav1.OwnerReference{owner(appsv1.SchemeGroupVersion.String(), "ReplicaSet", p.App)}
	}

	for _, volume := range p.LocalData {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
	}

	if p.Volume != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Volume},
		}})
	}

	if p.Fits != nil {
		restrict(&pod.Spec, p.Fits)
	}

	if !p.shown.gone.IsZero() {
		gone := metav1.NewTime(p.shown.gone)
		pod.DeletionTimestamp = &gone
	}

	if p.shown.node == "" {
		pod.Status.Phase = corev1.PodPending

		return pod
	}

	runs(pod, p.shown.ready)

	return pod
}

// runs sets the status of a pod that runs, and whether it is ready.
func runs(pod *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}

	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

func owner(version, kind, name string) metav1.OwnerReference {
	yes := true

	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: ownerUID(kind, name), Controller: &yes}
}

func ownerUID(kind, name string) types.UID {
	return types.UID("uid-" + strings.ToLower(kind) + "-" + name)
}

// restrict makes a pod require certain nodes, control planes or not.
func restrict(spec *corev1.PodSpec, names []string) {
	wanted := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: slices.Sorted(slices.Values(names))}
	if len(names) == 0 {
		// All nodes have the label, so no node fits.
		wanted.Operator = corev1.NodeSelectorOpDoesNotExist
	}

	spec.Tolerations = []corev1.Toleration{{Key: labelControlPlane, Operator: corev1.TolerationOpExists}}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{wanted}},
		}},
	}}
}

// showReplicaSets updates the controllers of the pods, by app.
func (s *Server) showReplicaSets(replicas map[string]int) {
	of := s.table(appsv1.SchemeGroupVersion, resourceReplicaSets)

	for at := range of.objects {
		if _, known := replicas[at.name]; !known {
			s.drop(itself(), of, at)
		}
	}

	for app, count := range replicas {
		wanted, selected := int32(count), map[string]string{labelApp: app} //nolint:gosec // a few pods

		// Only the number in the stored object ever changes.
		if standing, is := of.objects[key{namespaceWorkload, app}].(*appsv1.ReplicaSet); is && *standing.Spec.Replicas == wanted {
			continue
		}

		s.show(of, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: app, UID: ownerUID("ReplicaSet", app)},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: &wanted, Selector: &metav1.LabelSelector{MatchLabels: selected},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selected}},
			},
		})
	}
}

// showBudgets updates the budgets and their numbers.
func (s *Server) showBudgets() {
	of := s.table(policyv1.SchemeGroupVersion, resourceBudgets)
	present := map[key]bool{}

	for _, budget := range s.budgets {
		wanted := budget.object()
		present[keyOf(wanted)] = true

		if !budget.Stale {
			wanted.Status = s.numbers(budget)
		}

		s.show(of, wanted)
	}

	for at := range of.objects {
		if !present[at] {
			s.drop(itself(), of, at)
		}
	}
}

func (b *Budget) object() *policyv1.PodDisruptionBudget {
	least := intstr.FromInt(b.MinAvailable)
	made := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: b.name(), Generation: 1},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelApp: b.App}},
		},
	}

	if b.AlwaysAllow {
		always := policyv1.AlwaysAllow
		made.Spec.UnhealthyPodEvictionPolicy = &always
	}

	return made
}

// numbers returns the status of a budget.
func (s *Server) numbers(budget *Budget) policyv1.PodDisruptionBudgetStatus {
	healthy, expected, allowed := s.healthy(budget.App), 0, 0

	for _, p := range s.workloads {
		if p.App == budget.App && p.goneAt.IsZero() {
			expected++
		}
	}

	condition := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason, ObservedGeneration: 1,
	}

	switch allowed = max(0, healthy-budget.MinAvailable); {
	case budget.Unsynced != "":
		allowed = 0
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, policyv1.SyncFailedReason, budget.Unsynced
	case allowed == 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
	}

	return policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, Conditions: []metav1.Condition{condition},
		DisruptionsAllowed: int32(allowed), CurrentHealthy: int32(healthy), //nolint:gosec // a few pods
		DesiredHealthy: int32(budget.MinAvailable), ExpectedPods: int32(expected), //nolint:gosec // a few pods
	}
}

// covered is what the budgets of a pod say.
type covered struct {
	by []*Budget
	// exhausted is a budget that allows no disruption; nil if all allow one.
	exhausted *Budget
}

// names returns the names of the budgets.
func (c covered) names() string {
	names := make([]string, 0, len(c.by))
	for _, budget := range c.by {
		names = append(names, budget.String())
	}

	return strings.Join(names, ", ")
}

// covering returns what the budgets say about a pod. For a pod that is being deleted already, none is asked.
func (s *Server) covering(p *workload) (found covered) {
	if !p.goneAt.IsZero() {
		return covered{}
	}

	for _, budget := range s.budgets {
		if budget.App != p.App {
			continue
		}

		found.by = append(found.by, budget)
		if s.exhausted(budget, p) {
			found.exhausted = budget
		}
	}

	return found
}

// exhausted reports whether a budget allows no disruption of a pod. The disruption of a pod that is not ready costs
// nothing, so it is allowed while enough others are ready, even if the numbers are old.
func (s *Server) exhausted(budget *Budget, asking *workload) bool {
	serves := s.serves(asking)

	switch {
	case !serves && budget.AlwaysAllow:
		return false
	case budget.Stale, budget.Unsynced != "" && serves:
		return true
	case serves:
		return s.healthy(budget.App)-1 < budget.MinAvailable
	default:
		return s.healthy(budget.App) < budget.MinAvailable
	}
}

// workload returns the pod of a workload by its name; nil if there is none.
func (s *Server) workload(at key) *workload {
	index := slices.IndexFunc(s.workloads, func(p *workload) bool { return at == key{namespaceWorkload, p.name} })
	if index < 0 {
		return nil
	}

	return s.workloads[index]
}

// nodeOfPod returns the node where the pod of a workload runs; empty for other pods.
func (s *Server) nodeOfPod(at key) string {
	s.lock()
	defer s.mu.Unlock()

	if p := s.workload(at); p != nil {
		return p.node
	}

	return ""
}

// podDetail returns the first details of a record about a pod.
func (a actor) podDetail(at key) map[string]string {
	return a.detail("namespace", at.namespace, "pod", at.name)
}

// overlap is the API server's message about a pod that two budgets cover.
const overlap = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

// evict deletes a pod if its budget allows it. The outcome for the pod of a workload is in the history in any case.
func (s *Server) evict(of *table, asked *call) (answer, error) {
	var eviction policyv1.Eviction
	if err := s.codec.decode(asked.header, asked.body, &eviction); err != nil {
		return answer{}, err
	}

	if given := cmp.Or(eviction.Name, asked.Name); given != asked.Name {
		return answer{}, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}

	options, err := s.deleteOptions(asked)
	if err != nil {
		return answer{}, err
	}

	at := key{asked.Namespace, asked.Name}

	current, err := s.one(of, at)
	if err == nil {
		err = precondition(of, current, options)
	}

	p := s.workload(at)

	switch {
	case err != nil:
		if detail := asked.who.podDetail(at); !asked.dry {
			detail["outcome"] = "gone"
			s.record("", history.KindEvict, detail)
		}

		return answer{}, err
	case p == nil:
		return answer{}, notTaken(asked)
	}

	return s.evicted(asked.who, p, asked.dry)
}

// evicted returns the answer to the eviction of a pod.
func (s *Server) evicted(who actor, p *workload, dry bool) (answer, error) {
	found := s.covering(p)
	detail := who.podDetail(key{namespaceWorkload, p.name})
	outcome := "evicted"

	switch {
	case dry:
		outcome = "dry-run"

		if found.exhausted != nil {
			detail["budget"] = found.exhausted.String()
		}
	case len(found.by) > 1:
		outcome, detail["budget"] = "blocked", found.names()
	case found.exhausted != nil:
		outcome, detail["budget"] = "blocked", found.exhausted.String()
	}

	detail["outcome"] = outcome
	s.record(p.node, history.KindEvict, detail)

	switch {
	case len(found.by) > 1:
		return answer{http.StatusInternalServerError, corev1.SchemeGroupVersion, &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: overlap,
		}}, nil
	case found.exhausted != nil:
		if p.App == blockerName(p.node) && !dry {
			s.tellBlocked(p.node, found.exhausted)
		}

		return answer{}, s.refusedBy(found.exhausted)
	case !dry:
		s.terminate(p)
	}

	return answer{http.StatusCreated, corev1.SchemeGroupVersion, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}}, nil
}

// evictAll evicts the pods of a node in the name of its machine, and returns how many are left. If a budget
// refuses, the eviction is requested again.
func (s *Server) evictAll(who actor, node string) (left int) {
	s.lock()
	defer s.mu.Unlock()

	s.refresh(s.core(resourcePods))

	for _, p := range slices.Clone(s.workloads) {
		if p.node != node {
			continue
		}

		left++

		if p.goneAt.IsZero() {
			_, _ = s.evicted(who, p, false)
		}
	}

	return left
}

// tellBlocked records, once, that the scripted budget has blocked a drain.
func (s *Server) tellBlocked(node string, budget *Budget) {
	if _, told := s.struck[node]; told {
		return
	}

	s.struck[node] = false
	s.record(node, history.KindFault, map[string]string{
		"step": string(model.StepDrain), "effect": string(model.EffectBlockedByBudget), "info": budget.String(),
	})
}

// refusedBy returns the answer if a budget allows no disruption.
func (s *Server) refusedBy(budget *Budget) error {
	refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	text := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.name(), budget.MinAvailable, s.healthy(budget.App))

	switch {
	case budget.Stale:
		text = fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget.name())
		refused.ErrStatus.Details.RetryAfterSeconds = 10
	case budget.Unsynced != "":
		text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", budget.name(), budget.Unsynced)
	}

	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: text,
	})

	return refused
}

// deletePod deletes a pod with its own grace period, whatever its budgets say.
func (s *Server) deletePod(asked *call, current object) error {
	p := s.workload(keyOf(current))
	if p == nil {
		return notTaken(asked)
	}

	detail := asked.who.podDetail(keyOf(current))
	if found := s.covering(p); found.exhausted != nil {
		detail["budget"] = found.exhausted.String()
	}

	asked.told = true
	s.record(p.node, history.KindDelete, detail)
	s.terminate(p)

	return nil
}

// notTaken returns the answer to a request that would remove a component of a node.
func notTaken(asked *call) error {
	return apierrors.NewForbidden(asked.group(), asked.Name, errors.New("the simulated cluster takes no component of a node away"))
}

// terminate stops a pod and starts another one in its place.
func (s *Server) terminate(p *workload) {
	if !p.goneAt.IsZero() {
		return
	}

	p.goneAt = s.now().Add(graceTime)

	if p.App == blockerName(p.node) {
		s.struck[p.node] = true
	}

	if !p.bound && !p.Unmanaged {
		s.startPod(p.PodSpec, s.place(p.PodSpec), s.now().Add(startTime))
	}
}

func (s *Server) addNamespaces() {
	for _, name := range []string{metav1.NamespaceDefault, namespaceSystem, namespaceWorkload} {
		s.commit(itself(), s.core(resourceNamespaces), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name + "-" + s.world.ClusterName())},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
}
