// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// silence is how long Kubernetes goes on believing a kubelet that says nothing.
const silence = 40 * time.Second

// nodeObject is a Node as its kubelet left it.
type nodeObject struct {
	machineID, bootID, kubelet string

	ready bool
	since time.Time
	// silentSince is zero while the kubelet runs.
	silentSince   time.Time
	unschedulable bool
	// mark is the run of ours that cordoned the node.
	mark string
	// byMachine is the annotation of a machine that cordoned its own node. It
	// outlives the cordon when somebody else lifts that.
	byMachine bool
	// static are the static pods as the kubelet last reported them, pressure what
	// it complains of.
	static   map[string]model.StaticPod
	pressure []string
	// labels are those that somebody gave it, shown these with its kubelet's: a map that
	// nobody changes.
	labels, shown map[string]string
}

func newNodeObject(state model.KubeState, now time.Time) *nodeObject {
	object := &nodeObject{machineID: state.MachineID, bootID: state.BootID, kubelet: state.Kubelet.Version, ready: state.Kubelet.Ready, since: now}
	object.shown = nodeLabels(state, nil)

	if !state.Kubelet.Running {
		object.silentSince = now
	}

	object.report(state)

	return object
}

// nodeLabels are the labels of a Node object: those that its kubelet gives it, and those of others.
func nodeLabels(state model.KubeState, given map[string]string) map[string]string {
	labels := map[string]string{"kubernetes.io/hostname": state.Name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	if state.Role == model.ControlPlane {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}

	maps.Copy(labels, given)

	return labels
}

// follow brings a Node object up to date with its machine.
func (c *Cluster) follow(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	now := c.now()

	state, err := c.world.KubeState(name)
	if err != nil {
		// Somebody else deletes the Node of a machine that was removed.
		return
	}

	object, known := c.nodes[name]
	if !known {
		if state.Kubelet.Running {
			c.nodes[name] = newNodeObject(state, now)
			c.recordLabels(name, nil)
		}

		return
	}

	object.fade(now)

	if !state.Kubelet.Running {
		if object.silentSince.IsZero() {
			object.silentSince = now
		}

		return
	}

	object.silentSince = time.Time{}
	object.machineID, object.bootID, object.kubelet = state.MachineID, state.BootID, state.Kubelet.Version
	object.report(state)
	object.turn(state.Kubelet.Ready, now)
}

// report has a kubelet that runs tell what became of the static pods and of its
// node.
func (n *nodeObject) report(state model.KubeState) {
	if !state.Kubelet.Running {
		return
	}

	n.pressure = nil
	if state.PodsReported {
		n.static = state.StaticPods
	}

	if state.DiskPressure {
		n.pressure = []string{"DiskPressure"}
	}
}

// staticPod is how the API server shows a static pod.
func (n *nodeObject) staticPod(node string, component cluster.Component, pod model.StaticPod) cluster.ComponentPod {
	made := cluster.ComponentPod{
		Node: node, Component: component, Image: pod.PodImage, Ready: pod.Ready && !n.lost(),
		ConfigVersion: strconv.Itoa(pod.PodConfigVersion), Started: pod.Started, Trouble: pod.Trouble,
	}

	if component == cluster.APIServer {
		made.FilesVersion = strconv.Itoa(pod.PodFilesVersion)
	}

	return made
}

// turn sets the Ready condition.
func (n *nodeObject) turn(ready bool, at time.Time) {
	if n.ready != ready {
		n.ready, n.since = ready, at
	}
}

// fade makes a node not ready whose kubelet has been silent for long enough.
func (n *nodeObject) fade(now time.Time) {
	if !n.silentSince.IsZero() && now.Sub(n.silentSince) >= silence {
		n.turn(false, n.silentSince.Add(silence))
	}
}

// lost tells that Kubernetes has noticed that the kubelet says nothing: then no
// pod of the node counts as ready.
func (n *nodeObject) lost() bool { return !n.ready && !n.silentSince.IsZero() }

// unable tells since when, if at all, the node's kubelet does not look after
// its pods. A node that was never registered has none.
func (n *nodeObject) unable() (since time.Time, unable bool) {
	switch {
	case n == nil:
		return time.Time{}, false
	case !n.silentSince.IsZero():
		return n.silentSince, true
	default:
		return n.since, !n.ready
	}
}

func (n *nodeObject) reason() string {
	switch {
	case n.ready:
		return "KubeletReady"
	case !n.silentSince.IsZero():
		return "NodeStatusUnknown"
	default:
		return "KubeletNotReady"
	}
}

// kubeNodes lists the Node objects the way the adapter reads them.
func (c *Cluster) kubeNodes() []cluster.KubeNode {
	c.mu.Lock()
	defer c.mu.Unlock()

	var nodes []cluster.KubeNode

	for _, state := range c.world.KubeStates() {
		if node, registered := c.kubeNode(state); registered {
			nodes = append(nodes, node)
		}
	}

	return nodes
}

// kubeNode is how the API server shows a node; with the lock.
func (c *Cluster) kubeNode(state model.KubeState) (node cluster.KubeNode, registered bool) {
	object, registered := c.nodes[state.Name]
	if !registered {
		return cluster.KubeNode{}, false
	}

	object.report(state)
	object.fade(c.now())

	running, err := version.Parse(object.kubelet)
	if err != nil {
		running = version.Version{}
	}

	node = cluster.KubeNode{
		Name: state.Name, Addresses: innerFirst(state), ControlPlane: state.Role == model.ControlPlane,
		Ready: object.ready, ReadyReason: object.reason(), ReadySince: object.since,
		Unschedulable: object.unschedulable, Kubelet: running, SystemUUID: cmp.Or(state.UUID, object.machineID), MachineID: object.machineID, BootID: object.bootID,
		CordonedByTalos: object.unschedulable && object.byMachine && object.mark == "",
		Pressure:        slices.Clone(object.pressure),
		Labels:          object.shown,
		Talos:           true, ExcludesWorkloads: state.Role == model.ControlPlane && c.world.Has(model.Worker),
	}
	if object.unschedulable {
		node.CordonedBy = object.mark
	}

	return node, true
}

// innerFirst are the addresses of a Node object as the adapter orders them.
func innerFirst(state model.KubeState) []string {
	if state.Outer == "" {
		return state.Addresses
	}

	inner := slices.DeleteFunc(slices.Clone(state.Addresses), func(address string) bool { return address == state.Outer })

	return append(inner, state.Outer)
}

// RemoveNode takes a machine out of the cluster for good, and has a person
// delete its Node object.
func (c *Cluster) RemoveNode(name string) error {
	if err := c.world.RemoveNode(name); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.nodes, name)
	c.record(name, history.KindWrite, map[string]string{
		"verb": "delete", "resource": "nodes", "namespace": "", "name": name, "by": "other", "code": "200",
	})

	return nil
}

// CordonAsPerson makes a node unschedulable, or schedulable, the way a person
// with kubectl does: without any mark of ours.
func (c *Cluster) CordonAsPerson(node string, on bool) error {
	c.mu.Lock()

	object, found := c.nodes[node]
	if !found {
		c.mu.Unlock()

		return fmt.Errorf("node %s: %w", node, cluster.ErrNotFound)
	}

	changed := object.set(on)
	if changed {
		c.recordCordon(node, on, map[string]string{"by": "other"})
	}
	c.mu.Unlock()

	c.world.SetUnschedulable(node, on)

	return nil
}

// set changes spec.unschedulable and tells whether that was a change.
func (n *nodeObject) set(on bool) bool {
	if n.unschedulable == on {
		return false
	}

	n.unschedulable = on

	return true
}

func (c *Cluster) recordCordon(node string, on bool, detail map[string]string) {
	detail["unschedulable"] = strconv.FormatBool(on)
	c.record(node, history.KindCordon, detail)
}

// cordon is the request of a client that marks what it does.
func (c *Cluster) cordon(client, node, run string) (ours bool, err error) {
	c.mu.Lock()

	object, found := c.nodes[node]

	switch {
	case !found:
		c.mu.Unlock()

		return false, fmt.Errorf("unable to cordon node %s: %w", node, cluster.ErrNotFound)
	case object.unschedulable:
		ours = object.mark != ""
		c.mu.Unlock()

		return ours, nil
	}

	object.set(true)
	object.mark, object.byMachine = run, false
	c.recordCordon(node, true, map[string]string{"by": "client", "client": client, "run": run})
	c.mu.Unlock()

	c.world.SetUnschedulable(node, true)

	return true, nil
}

func (c *Cluster) uncordon(client, node string) {
	c.mu.Lock()

	object, found := c.nodes[node]
	if !found || object.mark == "" {
		c.mu.Unlock()

		return
	}

	object.mark = ""
	if object.set(false) {
		c.recordCordon(node, false, map[string]string{"by": "client", "client": client})
	}
	c.mu.Unlock()

	c.world.SetUnschedulable(node, false)
}

// UncordonAnyway makes a node schedulable in the name of a client, whoever set
// its cordon: what a careless client would do.
func (c *Cluster) UncordonAnyway(client, node string) {
	c.mu.Lock()
	if object, found := c.nodes[node]; found && object.unschedulable && object.mark == "" {
		object.mark = client
	}
	c.mu.Unlock()

	c.uncordon(client, node)
}
