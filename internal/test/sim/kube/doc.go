// SPDX-License-Identifier: MPL-2.0

// Package kube is the Kubernetes side of the simulator: a real etcd, kube-apiserver
// and kube-controller-manager, in which this package plays kubelets, static pods,
// scheduler and node controller according to a model of the machines. Control planes
// create their bootstrap manifests where they are missing, and from Talos 1.13 on keep
// the inventory of them that syncs use.
//
// Clients reach the API server through ports that come and go with the control
// planes. What clients write is read from the audit log and becomes history.
package kube
