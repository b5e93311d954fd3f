// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

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
