// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// lookupsMost is how often the published object is looked for. The publisher may
// be about to create it.
const lookupsMost = 5

// involved finds the object that an Event is about.
type involved interface {
	// reference is the object. An error means that it is worth to ask again.
	reference(ctx context.Context, said saying) (corev1.ObjectReference, error)
	// String names what the Events are about.
	String() string
	// namespace holds the Events.
	namespace() string
}

// involvedNode stands for the node of each saying.
type involvedNode struct{}

func (involvedNode) String() string { return "nodes" }

func (involvedNode) namespace() string { return metav1.NamespaceDefault }

// reference names the node twice, as kubelets do: "kubectl describe node" asks for
// both.
func (involvedNode) reference(_ context.Context, said saying) (corev1.ObjectReference, error) {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: said.node, UID: types.UID(said.node)}, nil
}

// involvedObject stands for the published object. It is used by one goroutine.
type involvedObject struct {
	of     cluster.Reference
	access cluster.ObjectAccess

	uid     types.UID
	lookups int
}

func (i *involvedObject) String() string { return i.of.String() }

// namespace is that of the object; Events about objects without one are in the
// default namespace.
func (i *involvedObject) namespace() string {
	if i.of.Namespace == "" {
		return metav1.NamespaceDefault
	}

	return i.of.Namespace
}

func (i *involvedObject) reference(ctx context.Context, _ saying) (corev1.ObjectReference, error) {
	err := i.identify(ctx)

	return corev1.ObjectReference{
		APIVersion: i.of.APIVersion, Kind: i.of.Kind, Namespace: i.of.Namespace, Name: i.of.Name, UID: i.uid,
	}, err
}

// identify looks up the UID of the object, which Events can do without.
func (i *involvedObject) identify(ctx context.Context) error {
	if i.uid != "" || i.access == nil || i.lookups >= lookupsMost {
		return nil
	}

	object, err := i.access.Object(ctx, i.of)
	if err == nil {
		metadata, _ := object["metadata"].(map[string]any)
		uid, _ := metadata["uid"].(string)
		i.uid, i.lookups = types.UID(uid), lookupsMost

		return nil
	}

	if errors.Is(err, cluster.ErrUnreachable) {
		return err
	}

	if i.lookups++; i.lookups < lookupsMost && errors.Is(err, cluster.ErrNotFound) {
		return err
	}

	i.lookups = lookupsMost

	return nil
}
