// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	// annotationCordon marks a cordon of a run with the run that set it.
	annotationCordon = "talosupgrade.vitistack.io/cordoned-by"
	// annotationTalosCordon is set by a machine that cordoned its own node. It stays if somebody else lifts the
	// cordon.
	annotationTalosCordon = "talos.dev/cordoned"
	// silence is how long Kubernetes trusts a kubelet that does not report.
	silence = 40 * time.Second
)

// kubelet is what is known about the kubelet of a node besides its Node object.
type kubelet struct {
	// reported is what it reported last.
	reported model.KubeState
	// ready is the condition of the node, since is when it last changed.
	ready bool
	since time.Time
	// silentSince is zero while the kubelet runs.
	silentSince time.Time
	// shown is what the Node object shows.
	shown shownNode
}

// shownNode is the part of a Node object that its kubelet and the node controller write.
type shownNode struct {
	machineID, systemUUID, bootID, version, talos string

	ready     bool
	reason    string
	since     time.Time
	pressure  bool
	dedicated bool
	outer     string
	room      cluster.Room
	// addresses are those of the machine, with spaces between them.
	addresses string
}

// register creates the Node object of a machine, as its kubelet does when it starts.
func (s *Server) register(state model.KubeState, now time.Time) {
	made := &kubelet{ready: state.Kubelet.Ready, since: now}
	made.report(state)

	if !state.Kubelet.Running {
		made.silentSince = now
	}

	s.kubelets[state.Name] = made
	s.commit(itself(), s.core(resourceNodes), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: state.Name, Labels: kubeletLabels(state),
	}})
	s.showNode(made, state)
}

// kubeletLabels returns the labels that a kubelet gives its node.
func kubeletLabels(state model.KubeState) map[string]string {
	labels := map[string]string{corev1.LabelHostname: state.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	if state.Role == model.ControlPlane {
		labels[labelControlPlane] = ""
	}

	return labels
}

// follow updates what is known about a kubelet after a change of its machine.
func (s *Server) follow(changed turned) {
	if changed.gone {
		// Somebody else deletes the Node object of a machine that was removed.
		return
	}

	state, known := changed.state, s.kubelets[changed.name]
	if known == nil {
		if state.Kubelet.Running {
			s.register(state, changed.at)
			s.record(changed.name, history.KindLabel, map[string]string{"labels": ""})
			s.startProxy(changed.name)
		}

		return
	}

	known.observe(state, changed.at)
}

// observe takes over what a kubelet reports, or that it does not report.
func (k *kubelet) observe(state model.KubeState, at time.Time) {
	k.fade(at)

	switch {
	case state.Kubelet.Running:
		k.silentSince = time.Time{}
		k.report(state)
		k.turn(state.Kubelet.Ready, at)
	case k.silentSince.IsZero():
		k.silentSince = at
	}
}

// report takes over the report of a kubelet. Until the kubelet has seen its static pods after a boot, it reports
// them as before.
func (k *kubelet) report(state model.KubeState) {
	if !state.PodsReported {
		state.StaticPods = k.reported.StaticPods
	}

	k.reported = state
}

// turn sets the Ready condition.
func (k *kubelet) turn(ready bool, at time.Time) {
	if k.ready != ready {
		k.ready, k.since = ready, at
	}
}

// fade makes a node not ready if its kubelet has been silent for long enough.
func (k *kubelet) fade(now time.Time) {
	if !k.silentSince.IsZero() && now.Sub(k.silentSince) >= silence {
		k.turn(false, k.silentSince.Add(silence))
	}
}

// lost reports whether Kubernetes has noticed that the kubelet is silent: then no pod of the node counts as ready.
func (k *kubelet) lost() bool { return !k.ready && !k.silentSince.IsZero() }

// unable reports whether the kubelet does not manage its pods, and since when. A node that was never registered
// has no kubelet.
func (k *kubelet) unable() (since time.Time, unable bool) {
	switch {
	case k == nil:
		return time.Time{}, false
	case !k.silentSince.IsZero():
		return k.silentSince, true
	default:
		return k.since, !k.ready
	}
}

const reasonUnknown = "NodeStatusUnknown"

func (k *kubelet) reason() string {
	switch {
	case k.ready:
		return "KubeletReady"
	case !k.silentSince.IsZero():
		return reasonUnknown
	default:
		return "KubeletNotReady"
	}
}

// showNodes updates all Node objects.
func (s *Server) showNodes(states []model.KubeState) {
	for _, state := range states {
		if known := s.kubelets[state.Name]; known != nil {
			s.showNode(known, state)
		}
	}
}

// showNode updates a Node object to its kubelet and to the time.
func (s *Server) showNode(known *kubelet, state model.KubeState) {
	known.observe(state, s.now())

	told := known.reported
	shown := shownNode{
		machineID: told.MachineID, systemUUID: cmp.Or(state.UUID, told.MachineID), bootID: told.BootID, version: told.Kubelet.Version, talos: told.Talos,
		ready: known.ready, reason: known.reason(), since: s.stamp(known.since).Time, pressure: told.DiskPressure,
		dedicated: state.Role == model.ControlPlane && s.world.Has(model.Worker),
		outer:     state.Outer, addresses: strings.Join(state.Addresses, " "), room: s.room(state.Name),
	}

	if shown == known.shown {
		return
	}

	known.shown = shown

	standing, _ := s.core(resourceNodes).objects[key{name: state.Name}].(*corev1.Node)
	if standing == nil {
		return
	}

	node := standing.DeepCopy()
	shown.write(node)
	s.commit(itself(), s.core(resourceNodes), node)
}

// write writes it into a Node object.
func (n shownNode) write(node *corev1.Node) {
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    *apiresource.NewMilliQuantity(n.room.CPU, apiresource.DecimalSI),
		corev1.ResourceMemory: *apiresource.NewQuantity(n.room.Memory, apiresource.BinarySI),
		corev1.ResourcePods:   *apiresource.NewQuantity(n.room.Pods, apiresource.DecimalSI),
	}
	node.Status.Capacity = node.Status.Allocatable.DeepCopy()
	node.Status.Addresses = nil

	for address := range strings.FieldsSeq(n.addresses) {
		kind := corev1.NodeInternalIP
		if address == n.outer {
			kind = corev1.NodeExternalIP
		}

		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: address})
	}

	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: node.Name})
	node.Status.Conditions = n.conditions()
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: n.machineID, SystemUUID: n.systemUUID, BootID: n.bootID, OSImage: "Talos (v" + n.talos + ")",
		KubeletVersion: "v" + n.version, OperatingSystem: "linux", Architecture: "amd64",
	}
	node.Spec.Taints = n.taints(node.Spec.Unschedulable)
}

// conditions returns the pressures and Ready.
func (n shownNode) conditions() []corev1.NodeCondition {
	var list []corev1.NodeCondition

	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		condition := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient"}

		if n.pressure && kind == corev1.NodeDiskPressure {
			condition.Status, condition.Reason = corev1.ConditionTrue, "KubeletHas"+string(kind)
		}

		list = append(list, condition)
	}

	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: n.reason, LastTransitionTime: metav1.NewTime(n.since),
	}

	switch {
	case n.ready:
		ready.Status = corev1.ConditionTrue
	case n.reason == reasonUnknown:
		ready.Status = corev1.ConditionUnknown
	}

	return append(list, ready)
}

// taints returns those of control planes, and those that the node controller derives.
func (n shownNode) taints(unschedulable bool) []corev1.Taint {
	var list []corev1.Taint

	if n.dedicated {
		list = append(list, corev1.Taint{Key: labelControlPlane, Effect: corev1.TaintEffectNoSchedule})
	}

	if !n.ready {
		key := corev1.TaintNodeNotReady
		if n.reason == reasonUnknown {
			key = corev1.TaintNodeUnreachable
		}

		list = append(list, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}

	if unschedulable {
		list = append(list, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}

	if n.pressure {
		list = append(list, corev1.Taint{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule})
	}

	return list
}

// admitNode accepts from a client what people and tools write into nodes: the cordon, labels and annotations. A
// Node object without a kubelet may have any content.
func (s *Server) admitNode(of *table, current object, wanted *corev1.Node, part string) error {
	before, isNode := current.(*corev1.Node)
	if !isNode {
		if _, err := s.world.KubeState(wanted.Name); err == nil {
			return invalid(of, wanted.Name, "nodes of machines register themselves")
		}

		wanted.Status = corev1.NodeStatus{}

		return nil
	}

	if s.kubelets[wanted.Name] == nil {
		// A write of the status or of the rest leaves the other one as it is.
		status := wanted.Status
		if part == "" {
			wanted.Status = before.Status

			return nil
		}

		before.DeepCopyInto(wanted)
		wanted.Status = status

		return nil
	}

	rest := wanted.DeepCopy()
	rest.Spec.Unschedulable = before.Spec.Unschedulable

	if !equality.Semantic.DeepEqual(before.Spec, rest.Spec) || !equality.Semantic.DeepEqual(before.Status, rest.Status) {
		return invalid(of, wanted.Name, "the simulated cluster takes nothing of a node but its cordon, labels and annotations")
	}

	return nil
}

// commitNode stores a node that somebody has written, with the taint of its cordon, and tells the model about that.
func (s *Server) commitNode(who actor, node *corev1.Node) (told bool) {
	if known := s.kubelets[node.Name]; known != nil {
		node.Spec.Taints = known.shown.taints(node.Spec.Unschedulable)
	}

	s.ownCordon(who, node)

	told = s.commit(who, s.core(resourceNodes), node)
	s.world.SetUnschedulable(node.Name, node.Spec.Unschedulable)

	return told
}

// ownCordon remembers who has cordoned the node, unless that is a client, which marks its cordon.
func (s *Server) ownCordon(who actor, node *corev1.Node) {
	of := s.core(resourceNodes)

	standing, _ := of.objects[key{name: node.Name}].(*corev1.Node)
	if standing == nil || standing.Spec.Unschedulable == node.Spec.Unschedulable || s.tracked(of, standing) {
		return
	}

	node.ManagedFields = nil
	if node.Spec.Unschedulable && who.by != byClient {
		node.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: who.by, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`),
		}}
	}
}

// editNode changes a Node object in somebody's name. The lock is held. It reports whether the object exists.
func (s *Server) editNode(who actor, name string, change func(node *corev1.Node)) bool {
	standing, _ := s.core(resourceNodes).objects[key{name: name}].(*corev1.Node)
	if standing == nil {
		return false
	}

	node := standing.DeepCopy()
	change(node)

	if !equality.Semantic.DeepEqual(standing, node) {
		s.commitNode(who, node)
	}

	return true
}

// Cordon is what a Node object shows about its cordon.
type Cordon struct {
	Unschedulable bool
	// Run is the run that marked the node; empty for none. The mark stays if a person lifts the cordon.
	Run string
	// Talos is true if the machine cordoned the node itself. When it is back, it lifts the cordon, whoever set that by
	// then.
	Talos bool
}

func cordonOf(of object) Cordon {
	node, ok := of.(*corev1.Node)
	if !ok {
		return Cordon{}
	}

	_, talos := node.Annotations[annotationTalosCordon]

	return Cordon{Unschedulable: node.Spec.Unschedulable, Run: node.Annotations[annotationCordon], Talos: talos}
}

// Cordons returns what the Node objects show about their cordons, by name.
func (s *Server) Cordons() map[string]Cordon {
	s.lock()
	defer s.mu.Unlock()

	found := map[string]Cordon{}
	for at, node := range s.core(resourceNodes).objects {
		found[at.name] = cordonOf(node)
	}

	return found
}

// machines is what machines do in the Kubernetes API.
type machines struct{ server *Server }

// Cordon implements [model.Kubernetes].
func (m machines) Cordon(_ context.Context, name string, on bool) error {
	s := m.server
	if !s.world.Serving() {
		return refused(port)
	}

	s.lock()
	defer s.mu.Unlock()

	s.editNode(actor{by: "machine"}, name, func(node *corev1.Node) {
		_, own := node.Annotations[annotationTalosCordon]

		switch {
		case on == node.Spec.Unschedulable, !on && !own:
		case on:
			node.Spec.Unschedulable = true
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotationTalosCordon, "true")
		default:
			node.Spec.Unschedulable = false
			delete(node.Annotations, annotationTalosCordon)
		}
	})

	return nil
}

// drainPause is how often a machine checks whether its pods are gone.
const drainPause = 1013 * time.Millisecond

// Drain implements [model.Kubernetes].
func (m machines) Drain(ctx context.Context, node string, timeout time.Duration) error {
	s := m.server
	deadline := s.now().Add(timeout)

	for {
		left := 1
		if s.world.Serving() {
			left = s.evictAll(actor{by: "machine"}, node)
		}

		if left == 0 {
			return nil
		}

		if s.now().After(deadline) {
			return fmt.Errorf("draining %s: %d pods left after %s", node, left, timeout)
		}

		if err := s.world.Clock().Sleep(ctx, drainPause); err != nil {
			return err
		}
	}
}
