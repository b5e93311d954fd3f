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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column is a column of a table as kubectl prints it.
type column struct {
	name string
	// wide columns are shown only if the user asks for more.
	wide bool
	of   func(one object, now time.Time) any
}

// columnOf returns a column of the objects of one Go type.
func columnOf[T object](name string, wide bool, cell func(T) any) column {
	return column{name, wide, func(one object, _ time.Time) any {
		typed, ok := one.(T)
		if !ok {
			return none
		}

		return cell(typed)
	}}
}

const none = "<none>"

// columns returns those of a resource, with the names of the real API server for the resources that people look at.
func columns(resource string) []column {
	name := column{name: "Name", of: func(one object, _ time.Time) any { return one.GetName() }}
	age := column{name: "Age", of: func(one object, now time.Time) any { return age(one.GetCreationTimestamp(), now) }}

	switch resource {
	case resourceNodes:
		return []column{
			name, columnOf("Status", false, nodeStatus), columnOf("Roles", false, nodeRoles), age,
			columnOf("Version", false, func(node *corev1.Node) any { return node.Status.NodeInfo.KubeletVersion }),
			columnOf("Internal-IP", true, nodeAddress(corev1.NodeInternalIP)),
			columnOf("External-IP", true, nodeAddress(corev1.NodeExternalIP)),
			columnOf("OS-Image", true, func(node *corev1.Node) any { return node.Status.NodeInfo.OSImage }),
		}
	case resourcePods:
		return []column{
			name, columnOf("Ready", false, containersReady), columnOf("Status", false, podStatus), columnOf("Restarts", false, restarts), age,
			columnOf("IP", true, func(pod *corev1.Pod) any { return cmp.Or(pod.Status.PodIP, none) }),
			columnOf("Node", true, func(pod *corev1.Pod) any { return cmp.Or(pod.Spec.NodeName, none) }),
		}
	case resourceConfigMaps:
		return []column{name, columnOf("Data", false, func(one *corev1.ConfigMap) any { return len(one.Data) + len(one.BinaryData) }), age}
	case resourceLeases:
		return []column{name, columnOf("Holder", false, holder), age}
	case resourceDeployments:
		return []column{
			name, columnOf("Ready", false, func(one *appsv1.Deployment) any {
				return fmt.Sprintf("%d/%d", one.Status.ReadyReplicas, one.Status.Replicas)
			}),
			columnOf("Up-to-date", false, func(one *appsv1.Deployment) any { return one.Status.UpdatedReplicas }),
			columnOf("Available", false, func(one *appsv1.Deployment) any { return one.Status.AvailableReplicas }), age,
		}
	case resourceDaemonSets:
		return []column{
			name, columnOf("Desired", false, func(set *appsv1.DaemonSet) any { return set.Status.DesiredNumberScheduled }),
			columnOf("Current", false, func(set *appsv1.DaemonSet) any { return set.Status.CurrentNumberScheduled }),
			columnOf("Ready", false, func(set *appsv1.DaemonSet) any { return set.Status.NumberReady }),
			columnOf("Up-to-date", false, func(set *appsv1.DaemonSet) any { return set.Status.UpdatedNumberScheduled }),
			columnOf("Available", false, func(set *appsv1.DaemonSet) any { return set.Status.NumberAvailable }),
			columnOf("Node Selector", false, func(set *appsv1.DaemonSet) any {
				return cmp.Or(labels.FormatLabels(set.Spec.Template.Spec.NodeSelector), none)
			}), age,
		}
	case resourceEvents:
		return []column{
			{name: "Last Seen", of: lastSeen},
			columnOf("Type", false, func(event *corev1.Event) any { return event.Type }),
			columnOf("Reason", false, func(event *corev1.Event) any { return event.Reason }),
			columnOf("Object", false, func(event *corev1.Event) any {
				return strings.ToLower(event.InvolvedObject.Kind) + "/" + event.InvolvedObject.Name
			}),
			columnOf("Message", false, func(event *corev1.Event) any { return event.Message }),
		}
	default:
		return []column{name, age}
	}
}

// wide is the priority of a wide column.
const wide = 1

// viewed returns objects as a client wants them: as a table if it prefers that.
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

		// A client that wants only the version of one object does not look at cells either.
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
	shown, now := columns(of.name), s.stamp(s.now()).Time

	for _, one := range shown {
		definition := metav1.TableColumnDefinition{Name: one.name, Type: "string"}
		if one.name == "Name" {
			definition.Format = "name"
		}

		if one.wide {
			definition.Priority = wide
		}

		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}

	for _, item := range items {
		one, ok := item.(object)
		if !ok {
			continue
		}

		row := metav1.TableRow{Object: s.codec.included(of, one, include)}
		for _, column := range shown {
			row.Cells = append(row.Cells, column.of(one, now))
		}

		table.Rows = append(table.Rows, row)
	}
}

// age returns how long ago something was.
func age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}

	return duration.HumanDuration(now.Sub(since.Time))
}

func lastSeen(one object, now time.Time) any {
	if event, is := one.(*corev1.Event); is && !event.LastTimestamp.IsZero() {
		return age(event.LastTimestamp, now)
	}

	return age(one.GetCreationTimestamp(), now)
}

func holder(lease *coordinationv1.Lease) any {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}

	return *lease.Spec.HolderIdentity
}

// included returns what a row has of its object.
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

// containersReady counts the ready containers. Without statuses of their own, all are as ready as their pod.
func containersReady(pod *corev1.Pod) any {
	ready := 0

	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Ready {
			ready++
		}
	}

	if len(pod.Status.ContainerStatuses) == 0 && slices.ContainsFunc(pod.Status.Conditions, func(one corev1.PodCondition) bool {
		return one.Type == corev1.PodReady && one.Status == corev1.ConditionTrue
	}) {
		ready = len(pod.Spec.Containers)
	}

	return fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers))
}

func restarts(pod *corev1.Pod) any {
	count := int32(0)
	for i := range pod.Status.ContainerStatuses {
		count += pod.Status.ContainerStatuses[i].RestartCount
	}

	return count
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
