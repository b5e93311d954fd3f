// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The kinds of the controllers of Kubernetes itself that own pods.
const (
	kindDaemonSet             = "DaemonSet"
	kindReplicaSet            = "ReplicaSet"
	kindStatefulSet           = "StatefulSet"
	kindReplicationController = "ReplicationController"
	kindJob                   = "Job"
)

// owners are the controllers of pods.
type owners struct {
	// daemons are the DaemonSets, as "namespace/name".
	daemons map[string]bool
	// replicas are, by kind and UID, how many pods a controller wants. Of a kind
	// that could not be listed nothing is known.
	replicas map[string]map[types.UID]int
}

// owned is one controller and how many pods it wants.
type owned struct {
	uid      types.UID
	name     string
	replicas int
}

// owners lists the controllers of the kinds that the pods name, one list a kind.
func (c *Client) owners(ctx context.Context, drafts []*draft) (*owners, error) {
	named := map[string]bool{}

	for _, one := range drafts {
		if owner := metav1.GetControllerOf(&one.meta); owner != nil && ofKubernetes(owner) {
			named[owner.Kind] = true
		}
	}

	kinds := []string{kindDaemonSet, kindReplicaSet, kindStatefulSet, kindReplicationController, kindJob}
	lists := make([][]owned, len(kinds))
	denied := make([]bool, len(kinds))

	group, groupCtx := errgroup.WithContext(ctx)

	for i, kind := range kinds {
		if !named[kind] {
			continue
		}

		group.Go(func() (err error) {
			lists[i], err = c.controllers(groupCtx, kind)

			switch {
			case !errors.Is(err, cluster.ErrDenied):
				return err
			case kind == kindDaemonSet:
				// Without them it is not known what a drain leaves alone.
				lists[i], err = c.namedDaemonSets(groupCtx, drafts)

				return err
			default:
				denied[i] = true

				return nil
			}
		})
	}

	if err := group.Wait(); err != nil {
		return nil, err
	}

	found := &owners{daemons: map[string]bool{}, replicas: map[string]map[types.UID]int{}}

	for i, kind := range kinds {
		if named[kind] && !denied[i] {
			found.add(kind, lists[i])
		}
	}

	return found, nil
}

// namedDaemonSets reads the DaemonSets that the pods name one by one, which
// credentials may be allowed that cannot list: a drain asks for no more.
func (c *Client) namedDaemonSets(ctx context.Context, drafts []*draft) ([]owned, error) {
	var found []owned

	asked := map[string]bool{}
	exists := c.daemonSets(ctx)

	for _, one := range drafts {
		owner := metav1.GetControllerOf(&one.meta)
		if !isDaemonSet(owner) {
			continue
		}

		name := one.meta.Namespace + "/" + owner.Name
		if asked[name] {
			continue
		}

		asked[name] = true

		there, err := exists(one.meta.Namespace, owner.Name)
		if err != nil {
			return nil, err
		}

		if there {
			found = append(found, owned{name: name})
		}
	}

	return found, nil
}

func (o *owners) add(kind string, list []owned) {
	counts := make(map[types.UID]int, len(list))

	for _, one := range list {
		counts[one.uid] = one.replicas

		if kind == kindDaemonSet {
			o.daemons[one.name] = true
		}
	}

	o.replicas[kind] = counts
}

// of are the controller of a pod and how many pods it wants. A controller that
// does not exist any more is none: it brings nothing back.
func (o *owners) of(one *draft) (owner string, replicas int) {
	controller := metav1.GetControllerOf(&one.meta)
	if controller == nil {
		return "", 0
	}

	name := controller.Kind + "/" + controller.Name

	counts, listed := o.replicas[controller.Kind]
	if !listed || !ofKubernetes(controller) {
		return name, 0
	}

	replicas, exists := counts[controller.UID]

	switch {
	case !exists && controller.Kind == kindDaemonSet && o.daemons[one.meta.Namespace+"/"+controller.Name]:
		// It was made anew under its name, and adopts the pods of the old one.
		return name, 0
	case !exists:
		return "", 0
	default:
		return name, replicas
	}
}

// ofKubernetes tells a controller of Kubernetes from those of others, some of
// which carry the same names.
func ofKubernetes(owner *metav1.OwnerReference) bool {
	group, _, grouped := strings.Cut(owner.APIVersion, "/")

	return !grouped || group == appsv1.GroupName || group == batchv1.GroupName
}

// controllers lists the controllers of a kind.
func (c *Client) controllers(ctx context.Context, kind string) ([]owned, error) {
	const apps, batch = "/apis/apps/v1", "/apis/batch/v1"

	switch kind {
	case kindDaemonSet:
		return listOf(ctx, "list the DaemonSets of the cluster", c.all(apps, "daemonsets"),
			func() *appsv1.DaemonSetList { return &appsv1.DaemonSetList{} },
			func(page *appsv1.DaemonSetList) []owned {
				return each(page.Items, func(o *appsv1.DaemonSet) owned { return newOwned(&o.ObjectMeta, new(int32)) })
			})
	case kindReplicaSet:
		return listOf(ctx, "list the ReplicaSets of the cluster", c.all(apps, "replicasets"),
			func() *appsv1.ReplicaSetList { return &appsv1.ReplicaSetList{} },
			func(page *appsv1.ReplicaSetList) []owned {
				return each(page.Items, func(o *appsv1.ReplicaSet) owned { return newOwned(&o.ObjectMeta, o.Spec.Replicas) })
			})
	case kindStatefulSet:
		return listOf(ctx, "list the StatefulSets of the cluster", c.all(apps, "statefulsets"),
			func() *appsv1.StatefulSetList { return &appsv1.StatefulSetList{} },
			func(page *appsv1.StatefulSetList) []owned {
				return each(page.Items, func(o *appsv1.StatefulSet) owned { return newOwned(&o.ObjectMeta, o.Spec.Replicas) })
			})
	case kindJob:
		return listOf(ctx, "list the Jobs of the cluster", c.all(batch, "jobs"),
			func() *batchv1.JobList { return &batchv1.JobList{} },
			func(page *batchv1.JobList) []owned {
				return each(page.Items, func(o *batchv1.Job) owned { return newOwned(&o.ObjectMeta, o.Spec.Parallelism) })
			})
	default:
		return listOf(ctx, "list the ReplicationControllers of the cluster", c.all("/api/v1", "replicationcontrollers"),
			func() *corev1.ReplicationControllerList { return &corev1.ReplicationControllerList{} },
			func(page *corev1.ReplicationControllerList) []owned {
				return each(page.Items, func(o *corev1.ReplicationController) owned { return newOwned(&o.ObjectMeta, o.Spec.Replicas) })
			})
	}
}

// all asks for the objects of a resource in all namespaces.
func (c *Client) all(path, resource string) func() *rest.Request {
	return func() *rest.Request { return c.core.Get().AbsPath(path).Resource(resource) }
}

// newOwned takes the default of the API for a number that is missing.
func newOwned(object *metav1.ObjectMeta, replicas *int32) owned {
	made := owned{uid: object.UID, name: object.Namespace + "/" + object.Name, replicas: 1}
	if replicas != nil {
		made.replicas = int(*replicas)
	}

	return made
}

func each[O, T any](items []O, convert func(*O) T) []T {
	converted := make([]T, 0, len(items))
	for i := range items {
		converted = append(converted, convert(&items[i]))
	}

	return converted
}
