// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// NewUnavailable returns a stand-in for a Kubernetes API that cannot be reached, such as if the credentials may not
// ask Talos for a kubeconfig: every method that returns an error returns this one, unchanged. It is a
// [cluster.WorkloadReader], a [cluster.ObjectAccess] and a [cluster.SecretAccess] as well.
func NewUnavailable(err error) cluster.Kubernetes { return unavailable{err} }

type unavailable struct{ err error }

func (u unavailable) UID(context.Context) (string, error) { return "", u.err }

func (u unavailable) Nodes(context.Context) ([]cluster.KubeNode, error) { return nil, u.err }

func (u unavailable) FollowNodes(context.Context) (stop func()) { return func() {} }

func (u unavailable) NodesNow(context.Context, string) ([]cluster.KubeNode, error) {
	return nil, u.err
}

func (u unavailable) Node(context.Context, string) (cluster.KubeNode, error) {
	return cluster.KubeNode{}, u.err
}

func (u unavailable) StaticPods(context.Context, string, ...cluster.Component) ([]cluster.ComponentPod, error) {
	return nil, u.err
}

func (u unavailable) ComponentPods(context.Context) ([]cluster.ComponentPod, error) {
	return nil, u.err
}

func (u unavailable) Cordon(context.Context, string, string) (bool, error) { return false, u.err }

func (u unavailable) Uncordon(context.Context, string) error { return u.err }

func (u unavailable) PodsToEvict(context.Context, string) ([]cluster.Pod, error) {
	return nil, u.err
}

func (u unavailable) VolumesLeft(context.Context, string) ([]cluster.Volume, error) {
	return nil, u.err
}

func (u unavailable) Evict(context.Context, cluster.Pod) error { return u.err }

func (u unavailable) DeletePod(context.Context, cluster.Pod) error { return u.err }

func (u unavailable) Lease(context.Context) (cluster.Lease, error) { return cluster.Lease{}, u.err }

func (u unavailable) WriteLease(context.Context, cluster.Lease) (cluster.Lease, error) {
	return cluster.Lease{}, u.err
}

func (u unavailable) WriteSuspension(context.Context, cluster.Lease, *string) (cluster.Lease, error) {
	return cluster.Lease{}, u.err
}

func (u unavailable) Journal(context.Context) (cluster.Journal, error) {
	return cluster.Journal{}, u.err
}

func (u unavailable) WriteJournal(context.Context, cluster.Journal) (cluster.Journal, error) {
	return cluster.Journal{}, u.err
}

// Workloads implements [cluster.WorkloadReader].
func (u unavailable) Workloads(context.Context) (cluster.Workloads, error) {
	return cluster.Workloads{}, u.err
}

// Objects implements [cluster.Objects].
func (u unavailable) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, u.err
}

// Object implements [cluster.ObjectAccess].
func (u unavailable) Object(context.Context, cluster.Reference) (map[string]any, error) {
	return nil, u.err
}

// PatchObject implements [cluster.ObjectAccess].
func (u unavailable) PatchObject(context.Context, cluster.Reference, string, map[string]any) (map[string]any, error) {
	return nil, u.err
}

// HasPart implements [cluster.ObjectAccess].
func (u unavailable) HasPart(context.Context, cluster.Reference, string) (bool, error) {
	return false, u.err
}

// Secret implements [cluster.SecretAccess].
func (u unavailable) Secret(context.Context, string, string) (cluster.Secret, error) {
	return cluster.Secret{}, u.err
}

// Secrets implements [cluster.SecretAccess].
func (u unavailable) Secrets(context.Context, string, string) ([]cluster.Secret, error) {
	return nil, u.err
}

// PatchSecret implements [cluster.SecretAccess].
func (u unavailable) PatchSecret(context.Context, cluster.Secret, map[string][]byte) error {
	return u.err
}

func (u unavailable) Forget(context.Context, string) ([]string, error) { return nil, u.err }
