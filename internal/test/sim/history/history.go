// SPDX-License-Identifier: MPL-2.0

// Package history is the simulator's record of everything that happened: one [Event] per line of JSON. The checker
// and the verdict depend only on this record, so they give the same result while the simulator runs and after it
// stopped. The file omits what the lines before say already ([Writer]); [Table] is for people.
package history

// Kind says what an event is about. Its detail keys are listed next to it; all values are strings, booleans are
// "true" and "false".
type Kind string

const (
	// KindNode introduces a node, once, when it joins the simulation.
	// Detail: role (controlplane|worker), address, uuid, machine_id, talos, kubelet,
	// kubernetes (lowest component version), schematic, platform,
	// secure_boot, boot_id, etcd_id, joins (true for one that was not there
	// when the simulation began).
	KindNode Kind = "node"
	// KindRPC is a Talos API call that ended. Detail: method (full gRPC
	// method), role (strongest role of the certificate), code, mutating.
	// An install, a reboot and so on have events of their own as well.
	KindRPC Kind = "rpc"
	// KindPull is an image pull that ended. Detail: image, ok.
	KindPull Kind = "pull"
	// KindInstall is an installer run that ended. Detail: image, talos,
	// schematic, slot (A|B), exit, by (client|legacy|other: a person with
	// talosctl).
	KindInstall Kind = "install"
	// KindStage is a change of the MachineStatus stage. Detail: from, to, ready, and by (other) while a sequence
	// runs that a person with talosctl asked for.
	KindStage Kind = "stage"
	// KindDown is a machine that stops serving. Detail: by (client: a call of a client asked for it; other: a
	// person with talosctl did; power: the script cut its power; machine: it does so by itself, falling back).
	KindDown Kind = "down"
	// KindBoot is a machine whose kernel started. Detail: boot_id, talos,
	// schematic, platform, slot, kubelet, fallback (true when the old system came
	// back by itself), cause (upgrade|reboot|fallback|rollback).
	KindBoot Kind = "boot"
	// KindEtcd is a change of a member. Detail: member (id), state
	// (healthy|down), leader (id of the cluster's leader, 0 for none).
	KindEtcd Kind = "etcd"
	// KindKubelet is a change of what a node reports. Detail: ready,
	// version.
	KindKubelet Kind = "kubelet"
	// KindCordon is a change of spec.unschedulable. Detail: unschedulable,
	// by (client|machine|other: who made the request, by user agent).
	KindCordon Kind = "cordon"
	// KindLabel is a change of the labels of a Node object, in histories of virtual time. Detail: labels (all of
	// them, as "key=value" in ascending order with commas between them), object (none: there is no Node object any
	// more, so nobody can read its labels).
	KindLabel Kind = "label"
	// KindEvict is an eviction request that ended. Detail: namespace, pod,
	// outcome (evicted|blocked|gone|dry-run|failed), budget (namespace/name that
	// blocked it), code (of one that failed), by.
	KindEvict Kind = "evict"
	// KindDelete is a pod that a client deleted without eviction. Detail: namespace, pod, by, budget (a budget that
	// covers it and allowed no disruption, if there is one).
	KindDelete Kind = "delete"
	// KindVolume is a volume that was attached to a node or detached from it, or that the last pod of the node has
	// left, in histories of virtual time. Detail: volume, state (attached|unused|detached).
	KindVolume Kind = "volume"
	// KindLease is a change of the lease kube-system/talosupgrade. Detail:
	// holder ("" when released), action (acquire|renew|release).
	KindLease Kind = "lease"
	// KindJournal is a change of one key of the journal. Detail: key, phase ("" if the entry was removed), run,
	// value (the JSON as written; for the key holder, who acquired the lease last).
	KindJournal Kind = "journal"
	// KindAnnotation is a change of an upgrade.vitistack.io annotation.
	// Detail: object (kind/namespace/name), key (without prefix), value, by.
	KindAnnotation Kind = "annotation"
	// KindStatus is a change in the status of a custom resource: of its phase,
	// state or message, or of one of its conditions. Detail: object, by, and
	// either field (phase|state|message) and value, or condition (its type),
	// status, reason and message; a condition that was removed has none of them.
	KindStatus Kind = "status"
	// KindWrite is any other mutating Kubernetes request of a client. Detail: verb, resource, namespace, name, by,
	// code, version of a Node object after it, if that is known, and cluster (management) if it is not the upgraded
	// one.
	KindWrite Kind = "write"
	// KindConfig is a machine configuration that was applied or refused. Detail: mode, code (OK, or the gRPC code
	// of the refusal), dry_run, changed (the components whose image in it changed, separated by commas, and
	// installer for the image to install from), by (client|fault|other: a person with talosctl).
	KindConfig Kind = "config"
	// KindComponent is a change of a component on a node. Detail: component, image, version (without v),
	// config_version, state (stopped|starting|ready|failed). Stopped without a version is a component that is
	// switched off, or a kube-proxy that was removed.
	KindComponent Kind = "component"
	// KindMirror is what the mirror pods of a control plane show. Detail: state (stale: from before the boot;
	// fresh: what the kubelet reported since).
	KindMirror Kind = "mirror"
	// KindSnapshot is a snapshot of etcd whose stream ended. Detail: bytes, whole (true if the caller got all of
	// it, as it was hashed).
	KindSnapshot Kind = "snapshot"
	// KindFault is a scripted fault that took effect. Detail: step, effect, and info if it helps. Faults of the
	// steps etcd, disk, clock and security-state are in force from there until the same step and effect come again
	// at the same node with outcome "over".
	KindFault Kind = "fault"
	// KindRead is an observation of a node or of the cluster by a client. Detail: what
	// (version|etcd|nodes|machine|...). For nodes also via: empty for a list of their state, watch for an event
	// that reached the client, cache for a list, or the objects with which a watch begins, which may be older; then
	// client, version, and for watch the object of the event.
	KindRead Kind = "read"
	// KindTold is the result of an observation of a machine by a client under test, in histories of virtual time.
	// Detail: client, boot_id, talos (without v; empty if it is not a semantic version), schematic, platform, began
	// (when the observation began, as the time of an event).
	KindTold Kind = "told"
)

// Event is something that happened. A line of history.jsonl is an object with the time, the node and the kind, and
// next to them the details.
type Event struct {
	// Sim is the simulated time since the simulation began, in seconds.
	Sim float64 `json:"sim"`
	// Node is the Kubernetes node name; empty for cluster-wide events.
	Node   string            `json:"node,omitempty"`
	Kind   Kind              `json:"kind"`
	Detail map[string]string `json:"-"`
}

// Recorder receives events, and stamps them with the simulated time.
// Implementations are safe for concurrent use.
type Recorder interface {
	Record(node string, kind Kind, detail map[string]string)
}
