// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The methods below are what somebody else does to the objects that a run relies on: a person with kubectl, an
// autoscaler, a GitOps tool. The history attributes them to others.

// edit changes a node in somebody's name; the error is ErrNotFound if there is none.
func (s *Server) edit(who actor, node string, change func(*corev1.Node)) error {
	s.lock()
	defer s.mu.Unlock()

	if !s.editNode(who, node, change) {
		return fmt.Errorf("node %s: %w", node, cluster.ErrNotFound)
	}

	return nil
}

// CordonAsPerson makes a node unschedulable, or schedulable, as a person with kubectl does: without the mark of a
// run.
func (s *Server) CordonAsPerson(node string, on bool) error {
	return s.edit(person(), node, func(node *corev1.Node) { node.Spec.Unschedulable = on })
}

// UncordonAnyway makes a node schedulable in the name of a client, whoever set its cordon, as a careless client
// would.
func (s *Server) UncordonAnyway(client, node string) {
	// A node that is gone has no cordon.
	_ = s.edit(clientNamed(client), node, func(node *corev1.Node) {
		node.Spec.Unschedulable = false
		delete(node.Annotations, annotationCordon)
	})
}

// UnmarkAsPerson removes the mark of a run from a node, and leaves its cordon. It reports whether that leaves a
// cordon that belongs to nobody.
func (s *Server) UnmarkAsPerson(node string) (nobodys bool) {
	_ = s.edit(person(), node, func(node *corev1.Node) {
		_, marked := node.Annotations[annotationCordon]
		_, machine := node.Annotations[annotationTalosCordon]
		nobodys = marked && node.Spec.Unschedulable && !machine

		delete(node.Annotations, annotationCordon)
	})

	return nobodys
}

// LabelAsPerson sets a label of a node; an empty value removes it.
func (s *Server) LabelAsPerson(node, label, value string) error {
	return s.edit(person(), node, func(node *corev1.Node) {
		node.Labels[label] = value

		if value == "" {
			delete(node.Labels, label)
		}
	})
}

// DeleteNodeAsPerson deletes the Node object of a machine that runs on, and with it its cordon and its pods. Its
// kubelet registers it again at the machine's next change, or on [Server.RegisterNode].
func (s *Server) DeleteNodeAsPerson(node string) error {
	s.lock()
	defer s.mu.Unlock()

	if s.kubelets[node] == nil {
		return fmt.Errorf("node %s: %w", node, cluster.ErrNotFound)
	}

	s.deleteNode(person(), node)

	return nil
}

func (s *Server) deleteNode(who actor, node string) {
	s.drop(who, s.core(resourceNodes), key{name: node})

	if s.kubelets[node] == nil {
		return
	}

	s.record(node, history.KindLabel, map[string]string{"labels": "", "object": "none"})
	delete(s.kubelets, node)
	s.release(node)
	s.world.SetUnschedulable(node, false)
}

// RegisterNode makes the kubelet of a machine register its Node object if there is none.
func (s *Server) RegisterNode(node string) {
	s.notice(node)

	// Taking the lock updates the objects.
	s.lock()
	s.mu.Unlock()
}

// RemoveNode takes a machine out of the cluster for good, and makes a person delete its Node object.
func (s *Server) RemoveNode(name string) error {
	if err := s.world.RemoveNode(name); err != nil {
		return err
	}

	s.lock()
	defer s.mu.Unlock()

	s.drop(itself(), s.core(resourceNodes), key{name: name})
	delete(s.kubelets, name)
	s.record(name, history.KindWrite, person().detail("verb", verbDelete, "resource", resourceNodes, "namespace", "", "name", name, "code", "200"))

	return nil
}

// LeaveNode is [Server.RemoveNode] with the consequence for the pods: others are started elsewhere in their place.
func (s *Server) LeaveNode(name string) error {
	if err := s.RemoveNode(name); err != nil {
		return err
	}

	s.lock()
	defer s.mu.Unlock()

	s.release(name)

	return nil
}

// DeleteLeaseAsPerson deletes the lease, whoever holds it.
func (s *Server) DeleteLeaseAsPerson() {
	s.lock()
	defer s.mu.Unlock()

	s.drop(person(), s.leases(), key{namespaceSystem, leaseName})
}

// Suspend annotates the lease as a person does with kubectl; nil removes the annotation. It does nothing without a
// lease.
func (s *Server) Suspend(suspension *cluster.Suspension) {
	s.lock()
	defer s.mu.Unlock()

	standing, _ := s.leases().objects[key{namespaceSystem, leaseName}].(*coordinationv1.Lease)
	if standing == nil {
		return
	}

	lease := standing.DeepCopy()
	delete(lease.Annotations, annotationSuspend)

	if suspension != nil {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationSuspend, suspension.Reason)
		s.leases().own(suspension.By, standing, lease, suspension.Since)
	}

	s.commit(person(), s.leases(), lease)
}

// DeleteJournalAsPerson deletes the journal.
func (s *Server) DeleteJournalAsPerson() {
	s.lock()
	defer s.mu.Unlock()

	s.drop(person(), s.core(resourceConfigMaps), key{namespaceSystem, journalName})
}

// Annotations returns the annotations of the published object, by key without prefix.
func (s *Server) Annotations() map[string]string {
	s.lock()
	defer s.mu.Unlock()

	return publishedOn(s.core(resourceConfigMaps).objects[key{namespaceSystem, publishedName}])
}

// Annotate sets annotations of the published object in the name of a client, by key without prefix; an empty value
// removes the key.
func (s *Server) Annotate(client string, changes map[string]string) {
	s.annotate(clientNamed(client), changes)
}

// AnnotateAsPerson sets them in the name of somebody else.
func (s *Server) AnnotateAsPerson(changes map[string]string) { s.annotate(person(), changes) }

func (s *Server) annotate(who actor, changes map[string]string) {
	s.lock()
	defer s.mu.Unlock()

	of := s.core(resourceConfigMaps)
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespaceSystem, Name: publishedName,
		Labels:      map[string]string{"app.kubernetes.io/managed-by": "terraform-provider-talosupgrade"},
		Annotations: map[string]string{"talosupgrade.vitistack.io/cluster-id": s.world.ClusterID()},
	}}

	if standing, is := of.objects[keyOf(published)].(*corev1.ConfigMap); is {
		published = standing.DeepCopy()
	}

	for name, value := range changes {
		if value == "" {
			delete(published.Annotations, prefixPublished+name)
		} else {
			metav1.SetMetaDataAnnotation(&published.ObjectMeta, prefixPublished+name, value)
		}
	}

	s.commit(who, of, published)
}

// Delete deletes an object. With finalizers the object stays, with the time of its deletion.
func (s *Server) Delete(of cluster.Reference, finalizers ...string) error {
	s.lock()
	defer s.mu.Unlock()

	at := key{of.Namespace, of.Name}

	index := slices.IndexFunc(s.tables, func(t *table) bool { return t.kind == of.Kind && t.version.String() == of.APIVersion })
	if index < 0 || s.tables[index].objects[at] == nil {
		return fmt.Errorf("unable to delete %s: %w", of, cluster.ErrNotFound)
	}

	in := s.tables[index]

	if len(finalizers) == 0 {
		s.drop(person(), in, at)

		return nil
	}

	held, _ := in.objects[at].DeepCopyObject().(object)
	deleted := s.stamp(s.now())
	held.SetDeletionTimestamp(&deleted)
	held.SetFinalizers(finalizers)
	s.commit(person(), in, held)

	return nil
}
