// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Lease reads the lease that serialises upgrades; zero when there is none.
func (c *Client) Lease(ctx context.Context) (cluster.Lease, error) {
	object, err := c.readLease(ctx)
	if err != nil || object == nil {
		return cluster.Lease{}, err
	}

	return leaseFrom(object), nil
}

// WriteLease creates the lease when its ResourceVersion is empty and updates
// it otherwise. The update is a patch, because a PUT would bring a lease back
// to life that somebody deleted.
func (c *Client) WriteLease(ctx context.Context, lease cluster.Lease) (cluster.Lease, error) {
	what := "write the lease " + Namespace + "/" + LeaseName

	request := c.coordination.Post().Namespace(Namespace).Resource("leases").Body(&coordinationv1.Lease{
		ObjectMeta: c.metadata(LeaseName, ""),
		Spec:       leaseSpec(lease),
	})

	if lease.ResourceVersion != "" {
		body, err := json.Marshal(leasePatch{Metadata: c.metadata("", lease.ResourceVersion), Spec: leasePatchSpec(leaseSpec(lease))})
		if err != nil {
			return cluster.Lease{}, fmt.Errorf("unable to %s: %w", what, err)
		}

		request = c.coordination.Patch(types.MergePatchType).Namespace(Namespace).Resource("leases").Name(LeaseName).Body(body)
	}

	var written coordinationv1.Lease
	if err := change(ctx, what, request, &written); err != nil {
		return cluster.Lease{}, vanished(lease.ResourceVersion, err)
	}

	return leaseFrom(&written), nil
}

// leasePatch is a JSON merge patch of everything that a lease says.
type leasePatch struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     leasePatchSpec    `json:"spec"`
}

// leasePatchSpec is the same as the original but for what is absent: null
// takes it away.
type leasePatchSpec struct {
	HolderIdentity       *string                                  `json:"holderIdentity"`
	LeaseDurationSeconds *int32                                   `json:"leaseDurationSeconds"`
	AcquireTime          *metav1.MicroTime                        `json:"acquireTime"`
	RenewTime            *metav1.MicroTime                        `json:"renewTime"`
	LeaseTransitions     *int32                                   `json:"leaseTransitions"`
	Strategy             *coordinationv1.CoordinatedLeaseStrategy `json:"strategy"`
	PreferredHolder      *string                                  `json:"preferredHolder"`
}

func (c *Client) readLease(ctx context.Context) (*coordinationv1.Lease, error) {
	var object coordinationv1.Lease

	err := read(ctx, "read the lease "+Namespace+"/"+LeaseName,
		c.coordination.Get().Namespace(Namespace).Resource("leases").Name(LeaseName), &object)
	if errors.Is(err, cluster.ErrNotFound) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	return &object, nil
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

func leaseFrom(object *coordinationv1.Lease) cluster.Lease {
	lease := cluster.Lease{ResourceVersion: object.ResourceVersion}

	if holder := object.Spec.HolderIdentity; holder != nil {
		lease.Holder = *holder
	}

	if acquired := object.Spec.AcquireTime; acquired != nil {
		lease.Acquired = acquired.Time
	}

	if renewed := object.Spec.RenewTime; renewed != nil {
		lease.Renewed = renewed.Time
	}

	if seconds := object.Spec.LeaseDurationSeconds; seconds != nil {
		lease.Duration = time.Duration(*seconds) * time.Second
	}

	if transitions := object.Spec.LeaseTransitions; transitions != nil {
		lease.Transitions = *transitions
	}

	return lease
}

// vanished turns the update of an object that somebody deleted into a
// conflict: what was read is no longer what stands.
func vanished(resourceVersion string, err error) error {
	var failure *callError
	if resourceVersion != "" && errors.As(err, &failure) && errors.Is(err, cluster.ErrNotFound) {
		failure.meanings = []error{cluster.ErrConflict}
	}

	return err
}
