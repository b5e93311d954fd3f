// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// heartbeatEvery is real time: scaled, the leases of a large cluster would
	// be most of what the API server does.
	heartbeatEvery = 10 * time.Second
	// heartbeatShare bounds how much of the time goes into heartbeats: one of
	// them in each such period.
	heartbeatShare = 60 * time.Millisecond
	// leasePeriods is how many heartbeats may fail before a lease expires.
	leasePeriods = 4
)

// heartbeatPeriod is the time between two heartbeats of a kubelet.
func heartbeatPeriod(machines int) time.Duration {
	return max(heartbeatEvery, time.Duration(machines)*heartbeatShare)
}

// heartbeat renews the leases of running kubelets until the server stops.
func (p *play) heartbeat() {
	for {
		machines := p.options.World.Machines()
		period := heartbeatPeriod(len(machines))

		for _, machine := range machines {
			// A beat that fails is followed by another one.
			if machine.Kubelet.Running && p.ctx.Err() == nil {
				_ = p.beat(machine.Name, leasePeriods*period)
			}
		}

		timer := time.NewTimer(period)

		select {
		case <-p.ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		}
	}
}

func (p *play) beat(node string, lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()

	leases := p.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())

	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return fmt.Errorf("encoding the heartbeat of %s: %w", node, err)
	}

	_, err = leases.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(lasts.Seconds())
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &now,
			},
		}, metav1.CreateOptions{})
	}

	if err != nil {
		return fmt.Errorf("renewing the lease of %s: %w", node, err)
	}

	return nil
}
