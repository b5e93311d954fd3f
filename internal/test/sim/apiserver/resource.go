// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The resources that the server itself knows by name.
const (
	resourceNodes      = "nodes"
	resourcePods       = "pods"
	resourceLeases     = "leases"
	resourceConfigMaps = "configmaps"
)

// resource is one that is served. What it does not allow is nil.
type resource struct {
	version    schema.GroupVersion
	name, kind string
	namespaced bool
	// list is an empty list, objects all that there are at the moment.
	list    func() runtime.Object
	objects func() ([]object, error)
	// empty is what the body of a create or update is read into.
	empty func() object
	// create, update and remove change the cluster, with an error for what the
	// cluster does not take; the rest has been checked.
	create func(asked *call, wanted object) error
	update func(asked *call, current, wanted object) error
	remove func(asked *call, current object) error
}

func (r *resource) group() schema.GroupResource {
	return schema.GroupResource{Group: r.version.Group, Resource: r.name}
}

// find is the resource at a path; nil where there is none.
func (s *Server) find(at target) *resource {
	for _, one := range slices.Concat(s.resources, s.loose(at.version)) {
		if one.version != at.version || one.name != at.resource {
			continue
		}

		scoped := at.namespace != ""
		if one.namespaced && !scoped && at.name != "" || !one.namespaced && scoped {
			return nil
		}

		return one
	}

	return nil
}

// stamped are all objects of a resource, with what an API server adds.
func (s *Server) stamped(of *resource) ([]object, error) {
	objects, err := of.objects()
	if err != nil {
		return nil, err
	}

	err = s.revisions.stamp(of.group().String(), objects, s.cluster.World().Clock().Now(), s.cluster.NextVersion)
	if err == nil && of.name == resourceNodes && of.group().Group == "" {
		err = s.nodeChanges.take(objects, s.cluster.NextVersion)
	}

	return objects, err
}

// one is an object by its name.
func (s *Server) one(of *resource, namespace, name string) (object, error) {
	objects, err := s.stamped(of)
	if err != nil {
		return nil, err
	}

	for _, one := range objects {
		if one.GetNamespace() == namespace && one.GetName() == name {
			return one, nil
		}
	}

	return nil, apierrors.NewNotFound(of.group(), name)
}

func (s *Server) create(of *resource, asked *call) (answer, error) {
	if of.create == nil {
		return answer{}, apierrors.NewMethodNotSupported(of.group(), asked.Verb)
	}

	wanted := of.empty()
	if err := s.codec.decode(asked.header, asked.body, wanted); err != nil {
		return answer{}, err
	}

	if wanted.GetNamespace() == "" {
		wanted.SetNamespace(asked.Namespace)
	}

	switch {
	case wanted.GetNamespace() != asked.Namespace:
		return answer{}, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	case wanted.GetName() == "":
		return answer{}, invalid(of, "", "name or generateName is required")
	case wanted.GetResourceVersion() != "":
		return answer{}, apierrors.NewInternalError(fmt.Errorf("resourceVersion should not be set on objects to be created"))
	}

	asked.Name = wanted.GetName()

	if _, err := s.one(of, asked.Namespace, asked.Name); err == nil {
		return answer{}, apierrors.NewAlreadyExists(of.group(), asked.Name)
	} else if !apierrors.IsNotFound(err) {
		return answer{}, err
	}

	if asked.dry {
		return answer{http.StatusCreated, of.version, wanted}, nil
	}

	if err := of.create(asked, wanted); err != nil {
		return answer{}, err
	}

	made, err := s.one(of, asked.Namespace, asked.Name)

	return answer{http.StatusCreated, of.version, made}, err
}

// update is that of an object as a whole, or of what a patch makes of it.
func (s *Server) update(of *resource, asked *call) (answer, error) {
	if of.update == nil {
		return answer{}, apierrors.NewMethodNotSupported(of.group(), asked.Verb)
	}

	current, err := s.one(of, asked.Namespace, asked.Name)
	if err != nil {
		return answer{}, err
	}

	wanted, err := s.wanted(of, asked, current)
	if err != nil {
		return answer{}, err
	}

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
	case asked.dry:
		return answer{http.StatusOK, of.version, wanted}, nil
	}

	// A write that changes nothing is none.
	if same, err := unchanged(current, wanted); err != nil || same {
		return answer{http.StatusOK, of.version, current}, err
	}

	if err := of.update(asked, current, wanted); err != nil {
		return answer{}, err
	}

	after, err := s.one(of, asked.Namespace, asked.Name)

	return answer{http.StatusOK, of.version, after}, err
}

// unchanged tells whether a write leaves an object as it is.
func unchanged(current, wanted object) (bool, error) {
	wanted.SetResourceVersion(current.GetResourceVersion())
	wanted.SetUID(current.GetUID())
	wanted.SetCreationTimestamp(current.GetCreationTimestamp())
	wanted.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})

	return alike(current, wanted)
}

// wanted is what an update makes of an object.
func (s *Server) wanted(of *resource, asked *call, current object) (object, error) {
	if asked.Verb == verbPatch {
		return patched(asked.header, current, asked.body)
	}

	wanted := of.empty()
	if err := s.codec.decode(asked.header, asked.body, wanted); err != nil {
		return nil, err
	}

	if wanted.GetNamespace() == "" {
		wanted.SetNamespace(asked.Namespace)
	}

	return wanted, nil
}

func (s *Server) remove(of *resource, asked *call) (answer, error) {
	if of.remove == nil {
		return answer{}, apierrors.NewMethodNotSupported(of.group(), asked.Verb)
	}

	options, err := s.deleteOptions(asked)
	if err != nil {
		return answer{}, err
	}

	current, err := s.one(of, asked.Namespace, asked.Name)
	if err != nil {
		return answer{}, err
	}

	if err := precondition(of, current, options); err != nil {
		return answer{}, err
	}

	done := answer{http.StatusOK, corev1.SchemeGroupVersion, &metav1.Status{
		Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: asked.Name, Kind: of.name, UID: current.GetUID()},
	}}

	if asked.dry {
		return done, nil
	}

	return done, of.remove(asked, current)
}

// deleteOptions are those in the body of a deletion or an eviction; nothing in
// it is the same as none.
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

// precondition compares an object with the one that is meant.
func precondition(of *resource, current object, options metav1.DeleteOptions) error {
	wanted := options.Preconditions

	switch {
	case wanted == nil:
		return nil
	case wanted.UID != nil && *wanted.UID != current.GetUID():
		return of.unmet(current, "the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", string(*wanted.UID), string(current.GetUID()))
	case wanted.ResourceVersion != nil && *wanted.ResourceVersion != current.GetResourceVersion():
		return of.unmet(current, "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
			"The object might have been modified", *wanted.ResourceVersion, current.GetResourceVersion())
	default:
		return nil
	}
}

// unmet is the answer where an object is not the one that is meant. The real one
// names the kind there, and not the resource.
func (r *resource) unmet(current object, format, wanted, standing string) error {
	return apierrors.NewConflict(schema.GroupResource{Group: r.version.Group, Resource: r.kind}, current.GetName(), fmt.Errorf(format, wanted, standing))
}

func otherUID(of *resource, name string, wanted, standing types.UID) error {
	return apierrors.NewConflict(of.group(), name, fmt.Errorf(
		"%s: UID in precondition: %s, UID in object meta: %s", "Precondition failed", wanted, standing))
}

func stale(of *resource, name string) error {
	return apierrors.NewConflict(of.group(), name, fmt.Errorf(
		"the object has been modified; please apply your changes to the latest version and try again"))
}

// invalid is the answer to an object that cannot be.
func invalid(of *resource, name, why string) error {
	status := apierrors.NewInvalid(schema.GroupKind{Group: of.version.Group, Kind: of.kind}, name, nil)
	status.ErrStatus.Message += ": " + why

	return status
}

// pageLife is for how long a list can be continued: etcd forgets older states.
const pageLife = 5 * time.Minute

// page is what is left of a list.
type page struct {
	rest    []object
	version string
	until   time.Time
}

// pages are the lists that can be continued, by their tokens.
type pages map[string]page

// listed is the part of the objects that a client asks for, as a list.
func (s *Server) listed(of *resource, namespace string, query url.Values) (runtime.Object, error) {
	now := s.cluster.World().Clock().Now()

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
	} else if current, err = s.chosen(of, namespace, query); err != nil {
		return nil, err
	}

	list := of.list()

	access, err := meta.ListAccessor(list)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	if limit > 0 && len(current.rest) > limit {
		left := int64(len(current.rest) - limit)
		token := fmt.Sprintf("from-%s-%d-of-%s-%d", of.name, left, current.version, limit)
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

// chosen are the objects that the selectors of a query want, in order.
func (s *Server) chosen(of *resource, namespace string, query url.Values) (page, error) {
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return page{}, apierrors.NewBadRequest(err.Error())
	}

	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return page{}, apierrors.NewBadRequest(err.Error())
	}

	for _, requirement := range byField.Requirements() {
		if !of.selectable(requirement.Field) {
			return page{}, apierrors.NewBadRequest("field label not supported: " + requirement.Field)
		}
	}

	objects, err := s.stamped(of)
	if err != nil {
		return page{}, err
	}

	objects = slices.DeleteFunc(objects, func(one object) bool {
		return namespace != "" && one.GetNamespace() != namespace ||
			!byLabel.Matches(labels.Set(one.GetLabels())) || !byField.Matches(fieldsOf(one))
	})

	slices.SortFunc(objects, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})

	return page{rest: objects, version: s.cluster.NextVersion()}, nil
}

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
	fieldNode      = "spec.nodeName"
	fieldPhase     = "status.phase"
)

// selectable tells whether a field selector may ask for a field.
func (r *resource) selectable(field string) bool {
	switch field {
	case fieldName:
		return true
	case fieldNamespace:
		return r.namespaced
	case fieldNode, fieldPhase:
		return r.name == resourcePods
	default:
		return false
	}
}

func fieldsOf(one object) fields.Set {
	set := fields.Set{fieldName: one.GetName(), fieldNamespace: one.GetNamespace()}

	if pod, ok := one.(*corev1.Pod); ok {
		set[fieldNode], set[fieldPhase] = pod.Spec.NodeName, string(pod.Status.Phase)
	}

	return set
}

// object is what has metadata.
type object interface {
	runtime.Object
	metav1.Object
}

// revision is what an API server knows about an object besides its content.
type revision struct {
	uid     types.UID
	created metav1.Time
	version string
	sum     [sha256.Size]byte
}

// revisions are those of all objects that exist, by resource and
// "namespace/name". The cluster changes most of them without telling, so an
// object has a new resource version when it looks different.
type revisions map[string]map[string]*revision

// stamp gives the objects of a resource their UIDs, creation times and resource
// versions, unless they have their own, and forgets those that are gone.
func (r revisions) stamp(resource string, objects []object, now time.Time, next func() string) error {
	known := r[resource]
	present := make(map[string]*revision, len(objects))

	for _, one := range objects {
		text, err := json.Marshal(one)
		if err != nil {
			return err
		}

		key, sum := one.GetNamespace()+"/"+one.GetName(), sha256.Sum256(text)

		standing := known[key]
		if standing == nil || one.GetUID() != "" && one.GetUID() != standing.uid {
			standing = &revision{uid: one.GetUID(), created: metav1.NewTime(now.Truncate(time.Second))}
		}

		if standing.sum != sum {
			standing.sum, standing.version = sum, one.GetResourceVersion()
			if standing.version == "" {
				standing.version = next()
			}
		}

		if standing.uid == "" {
			standing.uid = types.UID(fmt.Sprintf("uid-of-%s-%s-%s", resource, one.GetName(), standing.version))
		}

		one.SetUID(standing.uid)
		one.SetCreationTimestamp(standing.created)
		one.SetResourceVersion(standing.version)

		present[key] = standing
	}

	r[resource] = present

	return nil
}
