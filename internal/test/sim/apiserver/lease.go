// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"errors"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The objects of an upgrade, all in the namespace kube-system.
const (
	leaseName     = "talosupgrade"
	journalName   = "talosupgrade-journal"
	publishedName = "talosupgrade"

	labelManagedBy    = "app.kubernetes.io/managed-by"
	managedBy         = "terraform-provider-talosupgrade"
	annotationCluster = "talosupgrade.vitistack.io/cluster-id"
	annotationSuspend = "upgrade.vitistack.io/suspend"
	// suspendsNot is the one value of that which suspends nothing.
	suspendsNot = "false"
)

// metadata is what clients wrote into the metadata of an object.
type metadata struct {
	labels, annotations map[string]string
}

// standing is what was written into the metadata of an object; of one that was
// not made here, what a client of ours would have written.
func (s *Server) standing(key string) metadata {
	if kept, known := s.kept[key]; known {
		return metadata{labels: maps.Clone(kept.labels), annotations: maps.Clone(kept.annotations)}
	}

	return metadata{
		labels:      map[string]string{labelManagedBy: managedBy},
		annotations: map[string]string{annotationCluster: s.cluster.World().ClusterID()},
	}
}

func metadataOf(one object) metadata {
	return metadata{labels: one.GetLabels(), annotations: one.GetAnnotations()}
}

// strange is the answer to an object that the simulated cluster does not keep.
func strange(asked *call) error {
	return apierrors.NewForbidden(asked.group(), asked.Name, errors.New("the simulated cluster keeps the objects of an upgrade only"))
}

// conflicting is the answer to a write that the cluster refused.
func (s *Server) conflicting(asked *call, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrConflict) && asked.Verb == verbCreate:
		return apierrors.NewAlreadyExists(asked.group(), asked.Name)
	case errors.Is(err, cluster.ErrConflict):
		return stale(s.find(asked.target), asked.Name)
	default:
		return err
	}
}

func (s *Server) leases() ([]object, error) {
	lease, exists := s.cluster.LeaseView()
	if !exists {
		delete(s.kept, resourceLeases)

		return nil, nil
	}

	known := s.standing(resourceLeases)
	shown := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceSystem, Name: leaseName, ResourceVersion: lease.ResourceVersion,
			Labels: known.labels, Annotations: known.annotations,
		},
		Spec: leaseSpec(lease),
	}

	if standing := lease.Suspended; standing != nil {
		metav1.SetMetaDataAnnotation(&shown.ObjectMeta, annotationSuspend, standing.Reason)
		shown.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: standing.By, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: standing.Since},
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + annotationSuspend + `":{}}}}`),
		}}
	}

	return []object{shown}, nil
}

func (s *Server) createLease(asked *call, wanted object) error { return s.putLease(asked, wanted, "") }

func (s *Server) updateLease(asked *call, current, wanted object) error {
	return s.putLease(asked, wanted, current.GetResourceVersion())
}

func (s *Server) putLease(asked *call, wanted object, resourceVersion string) error {
	if asked.Namespace != namespaceSystem || asked.Name != leaseName {
		return strange(asked)
	}

	written, isLease := wanted.(*coordinationv1.Lease)
	if !isLease {
		return apierrors.NewInternalError(errors.New("a lease is expected"))
	}

	if seconds := written.Spec.LeaseDurationSeconds; seconds != nil && *seconds <= 0 {
		return invalid(s.find(asked.target), asked.Name, "spec.leaseDurationSeconds: must be greater than 0")
	}

	lease := leaseFrom(written)
	lease.ResourceVersion = resourceVersion

	if _, err := s.cluster.PutLease(lease); err != nil {
		return s.conflicting(asked, err)
	}

	asked.told = true
	s.suspend(asked, written)
	s.kept[resourceLeases] = metadataOf(written)

	return nil
}

// suspend has the cluster know what the annotation of a written lease says: the cluster
// keeps it from then on, with who wrote it and when.
func (s *Server) suspend(asked *call, written *coordinationv1.Lease) {
	reason, suspends := written.Annotations[annotationSuspend]
	if suspends = suspends && reason != suspendsNot; suspends {
		delete(written.Annotations, annotationSuspend)
	}

	lease, _ := s.cluster.LeaseView()

	switch standing := lease.Suspended; {
	case !suspends && standing != nil:
		s.cluster.Suspend(nil)
	case suspends && (standing == nil || standing.Reason != reason):
		s.cluster.Suspend(&cluster.Suspension{Reason: reason, By: asked.query.Get("fieldManager"), Since: time.Now().UTC().Truncate(time.Second)})
	}
}

func (s *Server) removeLease(asked *call, current object) error {
	if err := s.cluster.DropLease(current.GetResourceVersion()); err != nil {
		return s.conflicting(asked, err)
	}

	asked.told = true
	delete(s.kept, resourceLeases)

	return nil
}

func leaseSpec(lease cluster.Lease) coordinationv1.LeaseSpec {
	spec := coordinationv1.LeaseSpec{LeaseTransitions: &lease.Transitions}

	if seconds := int32(lease.Duration / time.Second); seconds > 0 {
		spec.LeaseDurationSeconds = &seconds
	}

	if lease.Holder != "" {
		spec.HolderIdentity = &lease.Holder
	}

	if !lease.Acquired.IsZero() {
		spec.AcquireTime = &metav1.MicroTime{Time: lease.Acquired}
	}

	if !lease.Renewed.IsZero() {
		spec.RenewTime = &metav1.MicroTime{Time: lease.Renewed}
	}

	return spec
}

func leaseFrom(written *coordinationv1.Lease) cluster.Lease {
	var lease cluster.Lease

	if holder := written.Spec.HolderIdentity; holder != nil {
		lease.Holder = *holder
	}

	if acquired := written.Spec.AcquireTime; acquired != nil {
		lease.Acquired = acquired.Time
	}

	if renewed := written.Spec.RenewTime; renewed != nil {
		lease.Renewed = renewed.Time
	}

	if seconds := written.Spec.LeaseDurationSeconds; seconds != nil {
		lease.Duration = time.Duration(*seconds) * time.Second
	}

	if transitions := written.Spec.LeaseTransitions; transitions != nil {
		lease.Transitions = *transitions
	}

	return lease
}
