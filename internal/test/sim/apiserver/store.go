// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation"
)

// object is what is stored. A stored object is never changed, only replaced.
type object interface {
	runtime.Object
	metav1.Object
}

// key names an object of a resource.
type key struct{ namespace, name string }

func keyOf(one object) key { return key{one.GetNamespace(), one.GetName()} }

// table holds the objects of a resource.
type table struct {
	version    schema.GroupVersion
	name, kind string
	namespaced bool
	// list and empty make a list and an object of the kind, in its Go type.
	list  func() runtime.Object
	empty func() object
	// verbs are the verbs by which clients change objects.
	verbs []string
	// custom is how objects of a kind without a Go type are checked.
	custom *Kind
	// owned is true if the objects remember who wrote what somebody reads: the annotations of a Lease, and the cordon of
	// a Node.
	owned bool

	objects map[key]object
	// log is for watches.
	log changes
	// fields tracks who has written what; nil until it is needed.
	fields *managedfields.FieldManager
}

// The resources that are known by name.
const (
	resourceNamespaces  = "namespaces"
	resourceNodes       = "nodes"
	resourcePods        = "pods"
	resourceConfigMaps  = "configmaps"
	resourceSecrets     = "secrets"
	resourceLeases      = "leases"
	resourceBudgets     = "poddisruptionbudgets"
	resourceReplicaSets = "replicasets"
	resourceDaemonSets  = "daemonsets"
	resourceEvents      = "events"
	resourceDeployments = "deployments"
	resourceAttachments = "volumeattachments"
)

// newTables returns the tables of the kinds of Kubernetes itself that are served.
func newTables() []*table {
	core, apps, batch, rbac := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	written := []string{verbCreate, verbUpdate, verbPatch, verbDelete}

	return []*table{
		typed[corev1.Namespace, corev1.NamespaceList](core, resourceNamespaces, "Namespace", false, written...),
		typed[corev1.Node, corev1.NodeList](core, resourceNodes, "Node", false, written...),
		typed[corev1.Pod, corev1.PodList](core, resourcePods, "Pod", true, verbDelete),
		typed[corev1.ConfigMap, corev1.ConfigMapList](core, resourceConfigMaps, "ConfigMap", true, written...),
		typed[corev1.Secret, corev1.SecretList](core, resourceSecrets, "Secret", true, written...),
		typed[coordinationv1.Lease, coordinationv1.LeaseList](coordinationv1.SchemeGroupVersion, resourceLeases, "Lease", true, written...),
		typed[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](policyv1.SchemeGroupVersion, resourceBudgets, "PodDisruptionBudget", true),
		typed[appsv1.ReplicaSet, appsv1.ReplicaSetList](apps, resourceReplicaSets, "ReplicaSet", true),
		typed[appsv1.DaemonSet, appsv1.DaemonSetList](apps, resourceDaemonSets, "DaemonSet", true, written...),
		typed[appsv1.Deployment, appsv1.DeploymentList](apps, resourceDeployments, "Deployment", true, written...),
		typed[appsv1.ControllerRevision, appsv1.ControllerRevisionList](apps, "controllerrevisions", "ControllerRevision", true),
		typed[appsv1.StatefulSet, appsv1.StatefulSetList](apps, "statefulsets", "StatefulSet", true),
		typed[batchv1.Job, batchv1.JobList](batch, "jobs", "Job", true),
		typed[batchv1.CronJob, batchv1.CronJobList](batch, "cronjobs", "CronJob", true, written...),
		typed[corev1.ReplicationController, corev1.ReplicationControllerList](core, "replicationcontrollers", "ReplicationController", true),
		typed[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](core, "persistentvolumeclaims", "PersistentVolumeClaim", true),
		typed[corev1.Service, corev1.ServiceList](core, "services", "Service", true, written...),
		typed[corev1.ServiceAccount, corev1.ServiceAccountList](core, "serviceaccounts", "ServiceAccount", true, written...),
		typed[rbacv1.Role, rbacv1.RoleList](rbac, "roles", "Role", true, written...),
		typed[rbacv1.RoleBinding, rbacv1.RoleBindingList](rbac, "rolebindings", "RoleBinding", true, written...),
		typed[rbacv1.ClusterRole, rbacv1.ClusterRoleList](rbac, "clusterroles", "ClusterRole", false, written...),
		typed[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](rbac, "clusterrolebindings", "ClusterRoleBinding", false, written...),
		typed[corev1.Event, corev1.EventList](core, resourceEvents, "Event", true, written...),
		typed[corev1.PersistentVolume, corev1.PersistentVolumeList](core, "persistentvolumes", "PersistentVolume", false),
		typed[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](
			storagev1.SchemeGroupVersion, resourceAttachments, "VolumeAttachment", false, written...),
	}
}

// typed returns an empty table of a kind with the Go type O, and L for its lists.
func typed[
	O, L any,
	PO interface {
		*O
		object
	},
	PL interface {
		*L
		runtime.Object
	},
](version schema.GroupVersion, name, kind string, namespaced bool, verbs ...string) *table {
	return &table{
		version: version, name: name, kind: kind, namespaced: namespaced, verbs: verbs, owned: name == resourceLeases || name == resourceNodes,
		list:    func() runtime.Object { return PL(new(L)) },
		empty:   func() object { return PO(new(O)) },
		objects: map[key]object{},
	}
}

// Kind is a kind of custom objects.
type Kind struct {
	APIVersion, Kind string
	// Status is true if the status is a part that is changed by itself.
	Status bool
	// Fields are the fields that a status may have; if empty, it may have any.
	Fields []string
	// Check checks an object before it is stored; old is nil if there was none.
	Check func(old, wanted map[string]any) error
}

func (t *table) group() schema.GroupResource {
	return schema.GroupResource{Group: t.version.Group, Resource: t.name}
}

func (t *table) allows(verb string) bool { return slices.Contains(t.verbs, verb) }

// table returns the table of a resource; nil if it is not served.
func (s *Server) table(version schema.GroupVersion, name string) *table {
	index := slices.IndexFunc(s.tables, func(of *table) bool { return of.name == name && of.version == version })
	if index < 0 {
		return nil
	}

	return s.tables[index]
}

// core returns a table of the group without a name.
func (s *Server) core(name string) *table { return s.table(corev1.SchemeGroupVersion, name) }

func (s *Server) attachments() *table {
	return s.table(storagev1.SchemeGroupVersion, resourceAttachments)
}

func (s *Server) leases() *table {
	return s.table(coordinationv1.SchemeGroupVersion, resourceLeases)
}

// commit stores an object in place of the one with its name, if there is one, and records the change. It reports
// whether the history has a kind of event for it.
func (s *Server) commit(who actor, of *table, wanted object) (told bool) {
	at := keyOf(wanted)
	before := of.objects[at]

	wanted.SetResourceVersion(s.next())

	if of.custom == nil {
		wanted.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}

	if before == nil {
		wanted.SetCreationTimestamp(s.stamp(s.now()))

		if wanted.GetUID() == "" {
			wanted.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.version)))
		}
	} else {
		wanted.SetCreationTimestamp(before.GetCreationTimestamp())
		wanted.SetUID(before.GetUID())
	}

	of.objects[at] = wanted

	of.log.add(change{before: before, now: wanted, version: int64(s.version)})

	return s.tell(who, of, before, wanted)
}

// show stores an object as the cluster itself changes it, unless it is stored like that already.
func (s *Server) show(of *table, wanted object) {
	if standing := of.objects[keyOf(wanted)]; standing == nil || !of.unchanged(standing, wanted) {
		s.commit(itself(), of, wanted)
	}
}

// drop deletes an object, as commit stores one.
func (s *Server) drop(who actor, of *table, at key) (told bool) {
	before := of.objects[at]
	if before == nil {
		return false
	}

	delete(of.objects, at)

	of.log.add(change{before: before, version: number(s.next())})

	return s.tell(who, of, before, nil)
}

// one returns an object by its name.
func (s *Server) one(of *table, at key) (object, error) {
	s.refresh(of)

	if found := of.objects[at]; found != nil {
		return found, nil
	}

	return nil, apierrors.NewNotFound(of.group(), at.name)
}

// refresh updates the objects of a resource to the state of the machines and to the time.
func (s *Server) refresh(of *table) {
	if s.beside {
		return
	}

	switch of.name {
	case resourceNodes:
		s.showNodes(s.world.KubeStates())
	case resourceDeployments:
		s.showRollouts()
	case resourcePods, resourceBudgets, resourceReplicaSets, resourceDaemonSets, resourceAttachments:
		states := s.world.KubeStates()
		s.showNodes(states)
		s.showComponents(states)
		s.showWorkloads()
	}
}

func (s *Server) create(of *table, asked *call) (answer, error) {
	if !of.allows(verbCreate) {
		return answer{}, apierrors.NewMethodNotSupported(of.group(), asked.Verb)
	}

	wanted, err := s.given(of, asked)
	if err != nil {
		return answer{}, err
	}

	// The name is unique.
	if prefix := wanted.GetGenerateName(); wanted.GetName() == "" && prefix != "" {
		wanted.SetName(fmt.Sprintf("%s%05d", prefix, s.version))
	}

	if s.tracked(of, nil) {
		if wanted, err = s.track(of, asked, nil, wanted); err != nil {
			return answer{}, err
		}
	}

	return s.add(of, asked, wanted)
}

// add stores an object that does not exist yet.
func (s *Server) add(of *table, asked *call, wanted object) (answer, error) {
	switch {
	case wanted.GetNamespace() != asked.Namespace:
		return answer{}, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	case wanted.GetName() == "":
		return answer{}, invalid(of, "", "name or generateName is required")
	case len(of.nameFaults(wanted.GetName())) > 0:
		return answer{}, invalid(of, wanted.GetName(), fmt.Sprintf("metadata.name: Invalid value: %q: %s",
			wanted.GetName(), strings.Join(of.nameFaults(wanted.GetName()), ", ")))
	case wanted.GetResourceVersion() != "":
		return answer{}, apierrors.NewInternalError(fmt.Errorf("resourceVersion should not be set on objects to be created"))
	}

	asked.Name = wanted.GetName()

	if of.objects[keyOf(wanted)] != nil {
		return answer{}, apierrors.NewAlreadyExists(of.group(), asked.Name)
	}

	if err := s.admit(of, nil, wanted, ""); err != nil {
		return answer{}, err
	}

	if !asked.dry {
		s.store(of, asked, nil, wanted)
	}

	return answer{http.StatusCreated, of.version, wanted}, nil
}

// nameFaults returns why an object cannot have a name.
func (t *table) nameFaults(name string) []string {
	if t.version.Group == rbacv1.GroupName {
		return content.IsPathSegmentName(name)
	}

	return validation.IsDNS1123Subdomain(name)
}

// update updates an object as a whole or, if the path says so, its status, by a new object or by a patch.
func (s *Server) update(of *table, asked *call) (answer, error) {
	if asked.Verb == verbPatch && applies(asked.header) {
		return s.apply(of, asked)
	}

	if !of.allows(asked.Verb) {
		return answer{}, apierrors.NewMethodNotSupported(of.group(), asked.Verb)
	}

	current, err := s.one(of, key{asked.Namespace, asked.Name})
	if err != nil {
		return answer{}, err
	}

	wanted, err := s.wanted(of, asked, current)
	if err != nil {
		return answer{}, err
	}

	return s.replace(of, asked, current, wanted)
}

// replace stores an object in place of the existing one.
func (s *Server) replace(of *table, asked *call, current, wanted object) (answer, error) {
	if given := wanted.GetResourceVersion(); given != "" && given != current.GetResourceVersion() {
		return answer{}, stale(of, asked.Name)
	}

	switch {
	case wanted.GetName() != asked.Name || wanted.GetNamespace() != asked.Namespace:
		return answer{}, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	case wanted.GetUID() != current.GetUID() && asked.Verb == verbPatch:
		return answer{}, invalid(of, asked.Name, "metadata.uid: field is immutable")
	case wanted.GetUID() != current.GetUID() && wanted.GetUID() != "":
		return answer{}, otherUID(of, asked.Name, wanted.GetUID(), current.GetUID())
	}

	if err := s.admit(of, current, wanted, asked.target.subresource); err != nil {
		return answer{}, err
	}

	switch {
	case applies(asked.header):
		// The apply has recorded who has written what.
	case !s.tracked(of, current):
		wanted.SetManagedFields(current.GetManagedFields())
	default:
		var err error
		if wanted, err = s.track(of, asked, current, wanted); err != nil {
			return answer{}, err
		}
	}

	// A write that changes nothing does not count.
	if asked.dry || of.unchanged(current, wanted) {
		return answer{http.StatusOK, of.version, wanted}, nil
	}

	s.store(of, asked, current, wanted)

	return answer{http.StatusOK, of.version, wanted}, nil
}

// store stores an object, with the consequences of that.
func (s *Server) store(of *table, asked *call, current, wanted object) {
	if node, is := wanted.(*corev1.Node); is {
		asked.told = s.commitNode(asked.who, node)

		return
	}

	if !s.tracked(of, current) && !applies(asked.header) {
		of.own(asked.manager(), current, wanted, s.stamp(s.now()).Time)
	}

	asked.told = s.commit(asked.who, of, wanted)
	s.rollOut(asked.who, of, keyOf(wanted))
	s.define(of, current, wanted)
}

// unchanged reports whether a write leaves an object, and who has written its fields, as they are. It sets what
// only the API server writes to the values before.
func (t *table) unchanged(current, wanted object) bool {
	wanted.SetResourceVersion(current.GetResourceVersion())
	wanted.SetUID(current.GetUID())
	wanted.SetCreationTimestamp(current.GetCreationTimestamp())

	if sameFields(current.GetManagedFields(), wanted.GetManagedFields()) {
		wanted.SetManagedFields(current.GetManagedFields())
	}

	if t.custom == nil {
		wanted.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}

	return equality.Semantic.DeepEqual(current, wanted)
}

// wanted returns an object after an update.
func (s *Server) wanted(of *table, asked *call, current object) (object, error) {
	if asked.Verb == verbPatch {
		return patched(asked.header, of, current, asked.body)
	}

	return s.given(of, asked)
}

// admit checks an object as the API server does before it stores it. It drops what it does not accept from a
// client.
func (s *Server) admit(of *table, current, wanted object, part string) error {
	switch one := wanted.(type) {
	case *corev1.Node:
		return s.admitNode(of, current, one, part)
	case *corev1.ConfigMap:
		if before, is := current.(*corev1.ConfigMap); is && before.Immutable != nil && *before.Immutable &&
			(one.Immutable == nil || !*one.Immutable || !equality.Semantic.DeepEqual(before.Data, one.Data)) {
			return invalid(of, one.Name, "data: Forbidden: field is immutable when `immutable` is set")
		}

		return admitConfigMap(of, one)
	case *coordinationv1.Lease:
		if seconds := one.Spec.LeaseDurationSeconds; seconds != nil && *seconds <= 0 {
			return invalid(of, one.Name, "spec.leaseDurationSeconds: must be greater than 0")
		}
	case *corev1.Secret:
		for key, value := range one.StringData {
			if one.Data == nil {
				one.Data = map[string][]byte{}
			}

			one.Data[key] = []byte(value)
		}

		one.StringData = nil
	case *appsv1.Deployment, *appsv1.DaemonSet:
		return admitRollout(of, current, wanted)
	case *unstructured.Unstructured:
		return of.custom.admit(of, current, one, part)
	}

	return nil
}

// mostOfData is how large the data of a ConfigMap may be, in bytes.
const mostOfData = 1 << 20

func admitConfigMap(of *table, wanted *corev1.ConfigMap) error {
	size := 0

	for key, value := range wanted.Data {
		size += len(value)

		if faults := validation.IsConfigMapKey(key); len(faults) > 0 {
			return invalid(of, wanted.Name, "data["+key+"]: "+strings.Join(faults, ", "))
		}
	}

	if size > mostOfData {
		return invalid(of, wanted.Name, "data: Too long: may not be more than 1048576 bytes")
	}

	return nil
}

// admit keeps the status and the rest of an object apart, counts the generation, and checks the object by the
// definition of its kind.
func (k *Kind) admit(of *table, current object, wanted *unstructured.Unstructured, part string) error {
	const status = "status"

	var old map[string]any

	wanted.SetGeneration(1)

	if before, is := current.(*unstructured.Unstructured); is {
		old = before.Object

		// A write of the status or of the rest leaves the other one as it is.
		if k.Status {
			written, standing := wanted.Object, before.DeepCopy().Object
			if part == status {
				written, standing = standing, written
			}

			delete(written, status)

			if value, has := standing[status]; has {
				written[status] = value
			}

			wanted.Object = written
		}

		wanted.SetGeneration(before.GetGeneration())

		if !equality.Semantic.DeepEqual(old["spec"], wanted.Object["spec"]) {
			wanted.SetGeneration(before.GetGeneration() + 1)
		}
	} else if k.Status {
		delete(wanted.Object, status)
	}

	fields, _ := wanted.Object[status].(map[string]any)
	for field := range fields {
		if len(k.Fields) > 0 && !slices.Contains(k.Fields, field) {
			return invalid(of, wanted.GetName(), fmt.Sprintf("unknown field \"status.%s\"", field))
		}
	}

	if k.Check != nil {
		if err := k.Check(old, wanted.Object); err != nil {
			return invalid(of, wanted.GetName(), err.Error())
		}
	}

	return nil
}

// own remembers who wrote the annotations that changed in this write.
func (t *table) own(manager string, current, wanted object, now time.Time) {
	if !t.owned {
		return
	}

	var standing map[string]string

	wanted.SetManagedFields(nil)

	if current != nil {
		standing = current.GetAnnotations()
		wanted.SetManagedFields(slices.Clone(current.GetManagedFields()))
	}

	written, fields := map[string]any{}, []string{}

	for key, value := range wanted.GetAnnotations() {
		if before, had := standing[key]; !had || before != value {
			written["f:"+key] = map[string]any{}
			fields = append(fields, `"f:`+key+`"`)
		}
	}

	text, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:annotations": written}})
	if err != nil || len(written) == 0 {
		return
	}

	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: now.UTC().Truncate(time.Second)},
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(text)),
	}

	// A manager owns what it has overwritten.
	others := slices.DeleteFunc(wanted.GetManagedFields(), func(other metav1.ManagedFieldsEntry) bool {
		return other.Manager == manager || slices.ContainsFunc(fields, func(field string) bool {
			return strings.Contains(string(other.FieldsV1.GetRawBytes()), field)
		})
	})

	wanted.SetManagedFields(append(others, entry))
}

func (s *Server) remove(of *table, asked *call) (answer, error) {
	if !of.allows(verbDelete) {
		return answer{}, apierrors.NewMethodNotSupported(of.group(), asked.Verb)
	}

	options, err := s.deleteOptions(asked)
	if err != nil {
		return answer{}, err
	}

	current, err := s.one(of, key{asked.Namespace, asked.Name})
	if err != nil {
		return answer{}, err
	}

	if err := precondition(of, current, options); err != nil {
		return answer{}, err
	}

	done := answer{http.StatusOK, corev1.SchemeGroupVersion, &metav1.Status{
		Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: asked.Name, Kind: of.name, UID: current.GetUID()},
	}}

	switch {
	case asked.dry:
	case of.name == resourcePods:
		// A pod goes with its own grace period, whatever its budgets say.
		return done, s.deletePod(asked, current)
	case of.name == resourceNodes:
		asked.told = true
		s.deleteNode(asked.who, asked.Name)
	default:
		asked.told = s.drop(asked.who, of, keyOf(current))
		s.rollOut(asked.who, of, keyOf(current))
		s.define(of, current, nil)
	}

	return done, nil
}

// deleteOptions returns those in the body of a deletion or an eviction; an empty body is the same as none.
func (s *Server) deleteOptions(asked *call) (metav1.DeleteOptions, error) {
	var options metav1.DeleteOptions

	switch {
	case len(asked.body) == 0:
		return options, nil
	case asked.Verb == verbDelete:
		return options, s.codec.decode(asked.header, asked.body, &options)
	case asked.Verb == verbEvict:
		var eviction policyv1.Eviction
		if err := s.codec.decode(asked.header, asked.body, &eviction); err != nil || eviction.DeleteOptions == nil {
			return options, err
		}

		return *eviction.DeleteOptions, nil
	default:
		return options, nil
	}
}

// precondition compares an object with the precondition. If it does not match, the error names the kind and not the
// resource, as that of the real API server does.
func precondition(of *table, current object, options metav1.DeleteOptions) error {
	unmet := func(format, wanted, standing string) error {
		return apierrors.NewConflict(schema.GroupResource{Group: of.version.Group, Resource: of.kind}, current.GetName(), fmt.Errorf(format, wanted, standing))
	}

	wanted := options.Preconditions

	switch {
	case wanted == nil:
		return nil
	case wanted.UID != nil && *wanted.UID != current.GetUID():
		return unmet("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", string(*wanted.UID), string(current.GetUID()))
	case wanted.ResourceVersion != nil && *wanted.ResourceVersion != current.GetResourceVersion():
		return unmet("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
			"The object might have been modified", *wanted.ResourceVersion, current.GetResourceVersion())
	default:
		return nil
	}
}

func otherUID(of *table, name string, wanted, standing types.UID) error {
	return apierrors.NewConflict(of.group(), name, fmt.Errorf(
		"%s: UID in precondition: %s, UID in object meta: %s", "Precondition failed", wanted, standing))
}

func stale(of *table, name string) error {
	return apierrors.NewConflict(of.group(), name, fmt.Errorf(
		"the object has been modified; please apply your changes to the latest version and try again"))
}

// invalid returns the answer to an object that is not valid.
func invalid(of *table, name, why string) error {
	status := apierrors.NewInvalid(schema.GroupKind{Group: of.version.Group, Kind: of.kind}, name, nil)
	status.ErrStatus.Message += ": " + why

	if at, reason, found := strings.Cut(why, ": "); found {
		status.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: at, Message: reason}}
	}

	return status
}

// pageLife is how long a list can be continued: etcd forgets older states.
const pageLife = 5 * time.Minute

// page is the rest of a list.
type page struct {
	rest    []object
	version string
	until   time.Time
}

// pages are the lists that can be continued, by their tokens.
type pages map[string]page

// listed returns the objects that a client asks for, as a list.
func (s *Server) listed(of *table, namespace string, query url.Values) (runtime.Object, error) {
	// The client has to be fast enough in real time, however fast the simulation is.
	now := time.Now()

	for token, one := range s.pages {
		if now.After(one.until) {
			delete(s.pages, token)
		}
	}

	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "0"))
	if err != nil || limit < 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("limit %q is no number of objects", query.Get("limit")))
	}

	current := page{}

	if token := query.Get("continue"); token != "" {
		var known bool
		if current, known = s.pages[token]; !known && !strings.HasPrefix(token, "from-") {
			return nil, apierrors.NewBadRequest("continue key is not valid")
		} else if !known {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
		}
	} else {
		wanted, err := of.selection(namespace, query)
		if err != nil {
			return nil, err
		}

		current = page{rest: s.chosen(of, wanted)}
		current.version = strconv.Itoa(s.version)
	}

	list := of.list()

	access, err := meta.ListAccessor(list)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	if limit > 0 && len(current.rest) > limit {
		left := int64(len(current.rest) - limit)
		s.lists++
		token := fmt.Sprintf("from-%s-%d-of-list-%d", of.name, left, s.lists)
		s.pages[token] = page{rest: current.rest[limit:], version: current.version, until: now.Add(pageLife)}
		current.rest = current.rest[:limit]

		access.SetContinue(token)
		access.SetRemainingItemCount(&left)
	}

	access.SetResourceVersion(current.version)

	items := make([]runtime.Object, 0, len(current.rest))
	for _, one := range current.rest {
		items = append(items, one)
	}

	if err := meta.SetList(list, items); err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	return list, nil
}

// selection is which objects of a resource a client asks for.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// selection returns what a query selects. Its errors are answers.
func (t *table) selection(namespace string, query url.Values) (selection, error) {
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return selection{}, apierrors.NewBadRequest(err.Error())
	}

	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return selection{}, apierrors.NewBadRequest(err.Error())
	}

	for _, requirement := range byField.Requirements() {
		if !t.selectable(requirement.Field) {
			return selection{}, apierrors.NewBadRequest("field label not supported: " + requirement.Field)
		}
	}

	return selection{namespace, byLabel, byField}, nil
}

func (s selection) matches(one object) bool {
	return (s.namespace == "" || one.GetNamespace() == s.namespace) &&
		(s.labels.Empty() || s.labels.Matches(labels.Set(one.GetLabels()))) && (s.fields.Empty() || s.fields.Matches(fieldsOf(one)))
}

// chosen returns the selected objects, in order.
func (s *Server) chosen(of *table, wanted selection) []object {
	s.refresh(of)

	var found []object

	for _, one := range of.objects {
		if wanted.matches(one) {
			found = append(found, one)
		}
	}

	slices.SortFunc(found, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})

	return found
}

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
	fieldNode      = "spec.nodeName"
	fieldPhase     = "status.phase"
)

// selectable reports whether a field selector may use a field.
func (t *table) selectable(field string) bool {
	switch field {
	case fieldName:
		return true
	case fieldNamespace:
		return t.namespaced
	case fieldNode, fieldPhase:
		return t.name == resourcePods
	default:
		return t.name == resourceEvents && slices.Contains(fieldsOfEvents(), field)
	}
}

func fieldsOf(one object) fields.Set {
	set := fields.Set{fieldName: one.GetName(), fieldNamespace: one.GetNamespace()}

	switch one := one.(type) {
	case *corev1.Pod:
		set[fieldNode], set[fieldPhase] = one.Spec.NodeName, string(one.Status.Phase)
	case *corev1.Event:
		about := one.InvolvedObject
		for i, value := range []string{about.Kind, about.Namespace, about.Name, string(about.UID), one.Reason, one.Type} {
			set[fieldsOfEvents()[i]] = value
		}
	}

	return set
}

// fieldsOfEvents returns the fields by which Events are selected.
func fieldsOfEvents() []string {
	return []string{"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "reason", "type"}
}
