// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column is one of a table as kubectl prints it, between the name and the age.
type column struct {
	name string
	// wide columns are shown only where somebody asks for more.
	wide bool
	of   func(object) any
}

// columnOf is a column of the objects of one Go type.
func columnOf[T object](name string, wide bool, cell func(T) any) column {
	return column{name, wide, func(one object) any {
		typed, ok := one.(T)
		if !ok {
			return none
		}

		return cell(typed)
	}}
}

const none = "<none>"

// columns are those of a resource that people look at, in the words of the real API
// server.
func columns(resource string) []column {
	return map[string][]column{
		resourceNodes: {
			columnOf("Status", false, nodeStatus),
			columnOf("Roles", false, nodeRoles),
			columnOf("Version", false, func(node *corev1.Node) any { return node.Status.NodeInfo.KubeletVersion }),
			columnOf("Internal-IP", true, nodeAddress(corev1.NodeInternalIP)),
			columnOf("External-IP", true, nodeAddress(corev1.NodeExternalIP)),
			columnOf("OS-Image", true, func(node *corev1.Node) any { return node.Status.NodeInfo.OSImage }),
		},
		resourcePods: {
			columnOf("Ready", false, func(pod *corev1.Pod) any {
				return fmt.Sprintf("%d/%d", containersReady(pod), len(pod.Spec.Containers))
			}),
			columnOf("Status", false, podStatus),
			columnOf("Restarts", false, func(pod *corev1.Pod) any {
				restarts := int32(0)
				for i := range pod.Status.ContainerStatuses {
					restarts += pod.Status.ContainerStatuses[i].RestartCount
				}

				return restarts
			}),
			columnOf("IP", true, func(pod *corev1.Pod) any { return cmp.Or(pod.Status.PodIP, none) }),
			columnOf("Node", true, func(pod *corev1.Pod) any { return cmp.Or(pod.Spec.NodeName, none) }),
		},
		resourceConfigMaps: {columnOf("Data", false, func(one *corev1.ConfigMap) any { return len(one.Data) + len(one.BinaryData) })},
		resourceLeases: {columnOf("Holder", false, func(lease *coordinationv1.Lease) any {
			if lease.Spec.HolderIdentity == nil {
				return ""
			}

			return *lease.Spec.HolderIdentity
		})},
		resourceDeployments: {
			columnOf("Ready", false, func(one *appsv1.Deployment) any {
				return fmt.Sprintf("%d/%d", one.Status.ReadyReplicas, one.Status.Replicas)
			}),
			columnOf("Up-To-Date", false, func(one *appsv1.Deployment) any { return one.Status.UpdatedReplicas }),
			columnOf("Available", false, func(one *appsv1.Deployment) any { return one.Status.AvailableReplicas }),
		},
		resourceEvents: {
			columnOf("Type", false, func(event *corev1.Event) any { return event.Type }),
			columnOf("Reason", false, func(event *corev1.Event) any { return event.Reason }),
			columnOf("Object", false, func(event *corev1.Event) any {
				return strings.ToLower(event.InvolvedObject.Kind) + "/" + event.InvolvedObject.Name
			}),
			columnOf("Message", false, func(event *corev1.Event) any { return event.Message }),
		},
		resourceDaemonSets: {
			columnOf("Desired", false, func(set *appsv1.DaemonSet) any { return set.Status.DesiredNumberScheduled }),
			columnOf("Current", false, func(set *appsv1.DaemonSet) any { return set.Status.CurrentNumberScheduled }),
			columnOf("Ready", false, func(set *appsv1.DaemonSet) any { return set.Status.NumberReady }),
			columnOf("Up-To-Date", false, func(set *appsv1.DaemonSet) any { return set.Status.UpdatedNumberScheduled }),
			columnOf("Available", false, func(set *appsv1.DaemonSet) any { return set.Status.NumberAvailable }),
		},
	}[resource]
}

// priority of a wide column.
const wide = 1

// viewed is what a client gets of objects: a table of them where it prefers that.
func (s *Server) viewed(r *http.Request, of *table, given runtime.Object) runtime.Object {
	preferred, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	if of == nil || !strings.Contains(preferred, "Table") {
		return given
	}

	media, params, err := mime.ParseMediaType(preferred)
	if err != nil || media != runtime.ContentTypeJSON || params["as"] != "Table" || params["v"] != metav1.SchemeGroupVersion.Version {
		return given
	}

	table := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metav1.SchemeGroupVersion.String()}}
	include := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))

	switch one, isObject := given.(object); {
	case isObject:
		table.ResourceVersion = one.GetResourceVersion()

		// Who wants nothing of one object but its version looks at no cells either.
		if include != metav1.IncludeNone {
			s.fill(table, of, []runtime.Object{one}, include)
		}
	case meta.IsListType(given):
		items, err := meta.ExtractList(given)
		access, accessible := given.(metav1.ListInterface)

		if err != nil || !accessible {
			return given
		}

		table.ResourceVersion, table.Continue, table.RemainingItemCount = access.GetResourceVersion(), access.GetContinue(), access.GetRemainingItemCount()
		s.fill(table, of, items, include)
	default:
		return given
	}

	return table
}

// fill puts objects into a table.
func (s *Server) fill(table *metav1.Table, of *table, items []runtime.Object, include metav1.IncludeObjectPolicy) {
	special := columns(of.name)

	table.ColumnDefinitions = []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}

	for _, one := range special {
		definition := metav1.TableColumnDefinition{Name: one.name, Type: "string"}
		if one.wide {
			definition.Priority = wide
		}

		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}

	// As with the real one, the age is the last column but for the version of a node and
	// what is wide.
	at := 1 + slices.IndexFunc(append(slices.Clone(special), column{wide: true}), func(one column) bool { return one.wide || one.name == "Version" })
	table.ColumnDefinitions = slices.Insert(table.ColumnDefinitions, at, metav1.TableColumnDefinition{Name: "Age", Type: "string"})

	for _, item := range items {
		one, ok := item.(object)
		if !ok {
			continue
		}

		cells := []any{one.GetName()}
		for _, column := range special {
			cells = append(cells, column.of(one))
		}

		cells = slices.Insert(cells, at, any(age(s.stamp(s.now()).Time, one)))
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: s.codec.included(of, one, include)})
	}
}

func age(now time.Time, one object) string {
	made := one.GetCreationTimestamp()
	if made.IsZero() {
		return "<unknown>"
	}

	return duration.HumanDuration(now.Sub(made.Time))
}

// included is what a row has of its object.
func (c *codec) included(of *table, one object, include metav1.IncludeObjectPolicy) runtime.RawExtension {
	switch include {
	case metav1.IncludeNone:
		return runtime.RawExtension{}
	case metav1.IncludeObject:
		text, _, err := c.encode(runtime.ContentTypeJSON, of.version, one)
		if err == nil {
			return runtime.RawExtension{Raw: text}
		}
	}

	partial := meta.AsPartialObjectMetadata(one)
	partial.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()}

	return runtime.RawExtension{Object: partial}
}

func nodeStatus(node *corev1.Node) any {
	status := "Unknown"

	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			status = "Ready"
		default:
			status = "NotReady"
		}
	}

	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}

	return status
}

func nodeRoles(node *corev1.Node) any {
	var roles []string

	for label := range node.Labels {
		if role, is := strings.CutPrefix(label, "node-role.kubernetes.io/"); is {
			roles = append(roles, role)
		}
	}

	slices.Sort(roles)

	return cmp.Or(strings.Join(roles, ","), none)
}

func nodeAddress(kind corev1.NodeAddressType) func(*corev1.Node) any {
	return func(node *corev1.Node) any {
		for _, address := range node.Status.Addresses {
			if address.Type == kind {
				return address.Address
			}
		}

		return none
	}
}

// containersReady counts the containers that are; without statuses of their own all are
// as their pod is.
func containersReady(pod *corev1.Pod) int {
	if len(pod.Status.ContainerStatuses) == 0 {
		if slices.ContainsFunc(pod.Status.Conditions, func(one corev1.PodCondition) bool {
			return one.Type == corev1.PodReady && one.Status == corev1.ConditionTrue
		}) {
			return len(pod.Spec.Containers)
		}

		return 0
	}

	ready := 0

	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Ready {
			ready++
		}
	}

	return ready
}

func podStatus(pod *corev1.Pod) any {
	status := cmp.Or(pod.Status.Reason, string(pod.Status.Phase))

	for i := range pod.Status.ContainerStatuses {
		if waiting := pod.Status.ContainerStatuses[i].State.Waiting; waiting != nil {
			status = waiting.Reason
		}
	}

	if pod.DeletionTimestamp != nil {
		status = "Terminating"
	}

	return status
}
