// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/resource"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// Workloads lists all pods that have not finished, all budgets and all nodes. If the credentials may not list
// controllers, the replicas are 0. DaemonSets that may not be listed are read one by one. ErrDenied means that they may
// not be read either, or that pods, budgets or nodes may not be listed.
func (c *Client) Workloads(ctx context.Context) (cluster.Workloads, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	var (
		drafts  []*draft
		budgets []*budget
		rooms   []cluster.Room
	)

	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() (err error) { drafts, err = c.drafts(firstCtx); return err })
	first.Go(func() (err error) { budgets, err = c.budgets(firstCtx); return err })
	first.Go(func() (err error) { rooms, err = c.rooms(firstCtx); return err })

	if err := first.Wait(); err != nil {
		return cluster.Workloads{}, err
	}

	// Only what the pods refer to is asked for, and after the pods: what is missing then does not exist any more.
	owners, err := c.owners(ctx, drafts)
	if err != nil {
		return cluster.Workloads{}, err
	}

	found := cluster.Workloads{Budgets: cover(budgets, drafts), Rooms: rooms}

	for _, one := range drafts {
		one.pod.Owner, one.pod.Replicas = owners.of(one)

		one.pod.Stays, err = staysBehind(&one.meta, func(name string) (bool, error) {
			return owners.daemons[one.meta.Namespace+"/"+name], nil
		})
		if err != nil {
			return cluster.Workloads{}, err
		}

		found.Pods = append(found.Pods, one.pod)
	}

	return found, nil
}

// drafts reads the pods that have not finished, sorted by namespace and name.
func (c *Client) drafts(ctx context.Context) ([]*draft, error) {
	drafts, err := listOf(ctx, "list the pods of the cluster",
		func() *rest.Request { return c.core.Get().Resource("pods") },
		func() *corev1.PodList { return &corev1.PodList{} },
		func(page *corev1.PodList) []*draft {
			var drafts []*draft

			for i := range page.Items {
				if pod := &page.Items[i]; !finished(pod) {
					drafts = append(drafts, newDraft(pod))
				}
			}

			return drafts
		})

	slices.SortFunc(drafts, func(a, b *draft) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})

	return drafts, err
}

// budgets reads the disruption budgets, sorted by namespace and name.
func (c *Client) budgets(ctx context.Context) ([]*budget, error) {
	found, err := listOf(ctx, "list the disruption budgets of the cluster",
		func() *rest.Request { return c.core.Get().AbsPath("/apis/policy/v1").Resource("poddisruptionbudgets") },
		func() *policyv1.PodDisruptionBudgetList { return &policyv1.PodDisruptionBudgetList{} },
		func(page *policyv1.PodDisruptionBudgetList) []*budget {
			var found []*budget
			for i := range page.Items {
				found = append(found, newBudget(&page.Items[i]))
			}

			return found
		})

	slices.SortFunc(found, func(a, b *budget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return found, err
}

// rooms reads what is allocatable on the nodes, sorted by name.
func (c *Client) rooms(ctx context.Context) ([]cluster.Room, error) {
	rooms, err := listOf(ctx, "list the nodes of the cluster",
		func() *rest.Request { return c.core.Get().Resource("nodes") },
		func() *corev1.NodeList { return &corev1.NodeList{} },
		func(page *corev1.NodeList) []cluster.Room {
			return each(page.Items, func(node *corev1.Node) cluster.Room {
				allocatable := node.Status.Allocatable

				return cluster.Room{
					Node: node.Name, CPU: allocatable.Cpu().MilliValue(), Memory: allocatable.Memory().Value(), Pods: allocatable.Pods().Value(),
				}
			})
		})

	slices.SortFunc(rooms, func(a, b cluster.Room) int { return cmp.Compare(a.Node, b.Node) })

	return rooms, err
}

// The kinds of Kubernetes' own controllers that own pods.
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
	// replicas is how many pods a controller wants, by kind and UID. A kind that could not be listed is absent.
	replicas map[string]map[types.UID]int
}

// owned is one controller and how many pods it wants.
type owned struct {
	uid      types.UID
	name     string
	replicas int
}

// owners lists the controllers of the kinds that the pods name, with one list for each kind.
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
				// Without the DaemonSets it is not known which pods a drain leaves alone.
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

// namedDaemonSets reads the DaemonSets that the pods name one by one: credentials may be allowed to get but not to
// list them, and a drain needs no more.
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

// of returns the controller of a pod and how many pods it wants. A controller that does not exist any more does not
// count, because it replaces no pod.
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
		// It was recreated under the same name and adopts the pods of the old one.
		return name, 0
	case !exists:
		return "", 0
	default:
		return name, replicas
	}
}

// ofKubernetes reports whether a controller is one of Kubernetes' own. Controllers of others may use the same
// kinds.
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

// all returns a request for the objects of a resource in all namespaces.
func (c *Client) all(path, resource string) func() *rest.Request {
	return func() *rest.Request { return c.core.Get().AbsPath(path).Resource(resource) }
}

// newOwned uses the default of the API if the number is missing.
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

// draft is what the pod object alone says about a pod. With 10,000 pods, nothing else is kept in memory.
type draft struct {
	pod cluster.WorkloadPod
	// meta has the namespace, the labels, the mirror annotation and the owners.
	meta metav1.ObjectMeta
	// unguarded is true if no budget applies: the API server checks none for a pod that has never run.
	unguarded bool
}

func newDraft(pod *corev1.Pod) *draft {
	// What counts is what a replacement of the pod would request, not what a resize made of this pod.
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})

	one := &draft{
		pod: cluster.WorkloadPod{
			Pod: cluster.Pod{
				Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Terminating: pod.DeletionTimestamp != nil,
			},
			Node: pod.Spec.NodeName, Ready: ready(pod),
			CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value(),
		},
		meta:      metav1.ObjectMeta{Namespace: pod.Namespace, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences},
		unguarded: pod.Status.Phase == corev1.PodPending,
	}

	if mirrored, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		one.meta.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirrored}
	}

	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.EmptyDir != nil {
			one.pod.LocalData = append(one.pod.LocalData, volume.Name)
		}
	}

	return one
}

// budget is a disruption budget with the selector of its pods.
type budget struct {
	cluster.Budget
	selector labels.Selector
}

func newBudget(object *policyv1.PodDisruptionBudget) *budget {
	policy := object.Spec.UnhealthyPodEvictionPolicy

	made := &budget{Budget: cluster.Budget{
		Namespace: object.Namespace, Name: object.Name,
		Allowed: int(object.Status.DisruptionsAllowed), Healthy: int(object.Status.CurrentHealthy),
		Desired: int(object.Status.DesiredHealthy), Expected: int(object.Status.ExpectedPods),
		// The API server refuses evictions until the controller has caught up.
		Stale:       object.Status.ObservedGeneration == 0 || object.Status.ObservedGeneration < object.Generation,
		Unsynced:    unsynced(object),
		AlwaysAllow: policy != nil && *policy == policyv1.AlwaysAllow,
	}}

	// An empty selector covers all pods. A missing one covers none, and neither does an invalid one, which the API
	// server ignores.
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}

	made.selector = selector

	return made
}

// unsynced returns in one line why the disruption controller could not work out the numbers; empty if it could. The
// controller then leaves the old numbers in place and allows no disruption (disruption.go of Kubernetes, failSafe).
func unsynced(object *policyv1.PodDisruptionBudget) string {
	condition := apimeta.FindStatusCondition(object.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != policyv1.SyncFailedReason {
		return ""
	}

	return cmp.Or(readable.OneLine(condition.Message, maxTrouble), condition.Reason)
}

// cover fills in which pods each budget covers. Pods that have never run are left out, because the API server
// checks no budget before it evicts one.
func cover(budgets []*budget, drafts []*draft) []cluster.Budget {
	// Most selectors ask for one label to have one value. Comparing each pod with
	// each budget would take seconds in large clusters.
	byLabel := map[string][]*budget{}

	for _, one := range budgets {
		byLabel[one.indexed()] = append(byLabel[one.indexed()], one)
	}

	for _, pod := range drafts {
		if pod.unguarded {
			continue
		}

		namespace := pod.meta.Namespace + "\n"
		pod.coveredBy(byLabel[namespace])

		for key, value := range pod.meta.Labels {
			pod.coveredBy(byLabel[namespace+key+"="+value])
		}
	}

	covered := make([]cluster.Budget, 0, len(budgets))
	for _, one := range budgets {
		covered = append(covered, one.Budget)
	}

	return covered
}

// indexed returns the namespace and, if the selector wants one value of a label, that label.
func (b *budget) indexed() string {
	requirements, _ := b.selector.Requirements()

	for _, requirement := range requirements {
		switch requirement.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		default:
			continue
		}

		if values := requirement.ValuesUnsorted(); len(values) == 1 {
			return b.Namespace + "\n" + requirement.Key() + "=" + values[0]
		}
	}

	return b.Namespace + "\n"
}

func (d *draft) coveredBy(budgets []*budget) {
	for _, one := range budgets {
		if one.selector.Matches(labels.Set(d.meta.Labels)) {
			one.Pods = append(one.Pods, d.pod.UID)
		}
	}
}
