// SPDX-License-Identifier: MPL-2.0

// Package kubeapi reaches the Kubernetes API of a cluster: its nodes, the pods
// that a drain moves, the objects that gates look at, and the two objects that
// make an upgrade safe to interrupt, the lease and the journal. It implements
// [cluster.Kubernetes], [cluster.WorkloadReader], [cluster.ObjectAccess] and
// [cluster.SecretAccess], and decides nothing.
//
// It has a scheme of its own with the few API groups that it knows by type;
// objects of any other kind are JSON.
package kubeapi

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

var (
	_ cluster.Kubernetes     = (*Client)(nil)
	_ cluster.WorkloadReader = (*Client)(nil)
	_ cluster.ObjectAccess   = (*Client)(nil)
	_ cluster.SecretAccess   = (*Client)(nil)
	_ cluster.WorkloadReader = unavailable{}
	_ cluster.ObjectAccess   = unavailable{}
	_ cluster.SecretAccess   = unavailable{}
)

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
