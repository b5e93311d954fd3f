// SPDX-License-Identifier: MPL-2.0

// Package kubeapi reaches the Kubernetes API of a cluster: its nodes, the pods
// that a drain moves, and the two objects that make an upgrade safe to
// interrupt, the lease and the journal. It implements [cluster.Kubernetes] and
// decides nothing.
//
// It speaks to three API groups only, with a scheme of its own: the typed
// clients of client-go would bring every group of Kubernetes into the binary.
package kubeapi

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

var _ cluster.Kubernetes = (*Client)(nil)

// The names under which an upgrade leaves traces in a cluster. People and other
// tools may rely on them.
const (
	// Namespace holds the lease, the journal and the published annotations.
	Namespace = "kube-system"
	// LeaseName is the lease that serialises upgrades.
	LeaseName = "talosupgrade"
	// JournalName is the ConfigMap that remembers unfinished work.
	JournalName = "talosupgrade-journal"
	// PublishedName is the ConfigMap that carries the annotations.
	PublishedName = "talosupgrade"
	// CordonAnnotation marks a cordon as ours; its value names the run.
	CordonAnnotation = "talosupgrade.vitistack.io/cordoned-by"
	// ClusterAnnotation says which cluster an object of ours is about.
	ClusterAnnotation = "talosupgrade.vitistack.io/cluster-id"
	// ManagedByLabel and ManagedBy mark the objects of ours.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "terraform-provider-talosupgrade"
)
