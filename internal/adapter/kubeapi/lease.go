// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// Lease reads the lease that serialises upgrades; zero if there is none.
func (c *Client) Lease(ctx context.Context) (cluster.Lease, error) {
	object, err := c.readLease(ctx)
	if err != nil || object == nil {
		return cluster.Lease{}, err
	}

	return leaseFrom(object), nil
}

// WriteLease creates the lease if its ResourceVersion is empty and updates it otherwise. It ignores lease.Suspended. The
// update is a patch, because the API server creates a missing Lease on PUT. If the lease has been deleted or written
// since it was read, [cluster.ErrConflict] is returned.
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

// suspender is the field manager with which actions of ours write a suspension; users see it as [cluster.Suspension.By].
// The API server keeps one time for each manager: with that of the renewals, Since would be the last renewal.
const suspender = "talosupgrade_suspend"

// WriteSuspension implements [cluster.Kubernetes].
func (c *Client) WriteSuspension(ctx context.Context, lease cluster.Lease, reason *string) (cluster.Lease, error) {
	what := "write to the lease " + Namespace + "/" + LeaseName + " whether upgrades are suspended"

	var request *rest.Request

	if lease.ResourceVersion == "" {
		object := &coordinationv1.Lease{ObjectMeta: c.metadata(LeaseName, "")}
		if reason != nil {
			metav1.SetMetaDataAnnotation(&object.ObjectMeta, protocol.KeySuspend, *reason)
		}

		request = c.coordination.Post().Body(object)
	} else {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": lease.ResourceVersion, "annotations": map[string]*string{protocol.KeySuspend: reason},
		}})
		if err != nil {
			return cluster.Lease{}, fmt.Errorf("unable to %s: %w", what, err)
		}

		request = c.coordination.Patch(types.MergePatchType).Name(LeaseName).Body(body)
	}

	var written coordinationv1.Lease
	if err := change(ctx, what, request.Namespace(Namespace).Resource("leases").Param("fieldManager", suspender), &written); err != nil {
		return cluster.Lease{}, vanished(lease.ResourceVersion, err)
	}

	return leaseFrom(&written), nil
}

// leasePatch is a JSON merge patch that replaces the spec and sets our labels and annotations. All other metadata stays,
// a suspension too.
type leasePatch struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     leasePatchSpec    `json:"spec"`
}

// leasePatchSpec has the fields of [coordinationv1.LeaseSpec] without omitempty: an absent one is encoded as null, which
// removes it.
type leasePatchSpec struct {
	HolderIdentity       *string                                  `json:"holderIdentity"`
	LeaseDurationSeconds *int32                                   `json:"leaseDurationSeconds"`
	AcquireTime          *metav1.MicroTime                        `json:"acquireTime"`
	RenewTime            *metav1.MicroTime                        `json:"renewTime"`
	LeaseTransitions     *int32                                   `json:"leaseTransitions"`
	Strategy             *coordinationv1.CoordinatedLeaseStrategy `json:"strategy"`
	PreferredHolder      *string                                  `json:"preferredHolder"`
}

// readLease returns the lease; nil if there is none.
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
	lease := cluster.Lease{ResourceVersion: object.ResourceVersion, Suspended: suspensionOf(object.ObjectMeta)}

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

// suspensionOf returns the suspension that the annotation [protocol.KeySuspend] records. If there is none, or its value
// is [protocol.SuspendNot], nil is returned. By and Since are the field manager that owns the annotation and the last
// time that it changed the lease; both are empty if the API server has not recorded them.
func suspensionOf(object metav1.ObjectMeta) *cluster.Suspension {
	reason, annotated := object.Annotations[protocol.KeySuspend]
	if !annotated || reason == protocol.SuspendNot {
		return nil
	}

	standing := &cluster.Suspension{Reason: strings.TrimSpace(reason)}

	for _, entry := range object.ManagedFields {
		if !ownsAnnotation(entry, protocol.KeySuspend) {
			continue
		}

		standing.By = entry.Manager
		if entry.Time != nil {
			standing.Since = entry.Time.UTC()
		}
	}

	return standing
}

// ownsAnnotation reports whether the manager of the entry has written the annotation.
func ownsAnnotation(entry metav1.ManagedFieldsEntry, key string) bool {
	var fields struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
	}

	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}

	_, owns := fields.Metadata.Annotations["f:"+key]

	return owns
}

const (
	// watchInterval is the time between two reads of a held lease.
	watchInterval = time.Second
	// defaultLease is how long [Client.Forget] watches a lease without a duration, or with one above longestLease.
	defaultLease = 30 * time.Second
	longestLease = time.Minute
)

// Forget implements [cluster.Kubernetes]. The journal is kept if an upgrade in it is awaited, if a sync of the manifests
// is due, or if it cannot be read; the record of an etcd snapshot does not count. If the journal or the ConfigMap cannot
// be deleted, the other one is still tried.
func (c *Client) Forget(ctx context.Context, id string) ([]string, error) {
	// The lease comes first: if it is kept, so is the rest.
	reason, err := c.forgetLease(ctx, id)
	if err != nil {
		return nil, err
	}

	var (
		kept     []string
		failures []error
	)

	if reason != "" {
		return []string{reason, "the journal and the published annotations, because the lease is kept"}, nil
	}

	for _, forget := range []func(context.Context, string) (string, error){c.forgetJournal, c.forgetPublished} {
		reason, err := forget(ctx, id)
		if err != nil {
			failures = append(failures, err)
		}

		if reason != "" {
			kept = append(kept, reason)
		}
	}

	return kept, errors.Join(failures...)
}

// forgetLease deletes the lease. If it is kept, its name and the reason are returned.
func (c *Client) forgetLease(ctx context.Context, id string) (kept string, err error) {
	name := "lease " + Namespace + "/" + LeaseName

	object, err := c.readLease(ctx)
	if err != nil || object == nil {
		return "", err
	}

	if reason := foreign(object.ObjectMeta, id); reason != "" {
		return name + ": " + reason, nil
	}

	object, renewed, err := c.watched(ctx, object)
	if err != nil || object == nil {
		return "", err
	}

	// It may have been made anew meanwhile.
	if reason := foreign(object.ObjectMeta, id); reason != "" {
		return name + ": " + reason, nil
	}

	if renewed {
		return fmt.Sprintf("%s: %s holds it and is at work", name, leaseFrom(object).Holder), nil
	}

	if suspended := suspensionOf(object.ObjectMeta); suspended != nil {
		return name + ": upgrades of the cluster are suspended " + suspended.String(), nil
	}

	return c.remove(ctx, name, c.coordination.Delete().Namespace(Namespace).Resource("leases").Name(LeaseName), object.ObjectMeta)
}

// watched returns the lease as it is after it was watched for its duration, nil if it is gone, and whether somebody
// renewed or took it meanwhile. Other writes, such as that of a suspension, do not count. Only waiting time does,
// because the clocks of two machines differ.
func (c *Client) watched(ctx context.Context, object *coordinationv1.Lease) (latest *coordinationv1.Lease, renewed bool, err error) {
	lease := leaseFrom(object)

	duration := lease.Duration
	if duration <= 0 || duration > longestLease {
		duration = defaultLease
	}

	for waited := time.Duration(0); lease.Holder != "" && waited < duration; waited += watchInterval {
		if err := c.sleep(ctx, watchInterval); err != nil {
			return nil, false, err
		}

		object, err = c.readLease(ctx)
		if err != nil || object == nil {
			return nil, false, err
		}

		switch current := leaseFrom(object); {
		case current.Holder == "":
			return object, false, nil
		case current.Holder != lease.Holder, !current.Renewed.Equal(lease.Renewed):
			return object, true, nil
		}
	}

	return object, false, nil
}

// forgetJournal deletes the journal. If it is kept, its name and the reason are returned.
func (c *Client) forgetJournal(ctx context.Context, id string) (kept string, err error) {
	name := "ConfigMap " + Namespace + "/" + JournalName

	object, err := c.readConfigMap(ctx, JournalName)
	if err != nil || object == nil {
		return "", err
	}

	if reason := foreign(object.ObjectMeta, id); reason != "" {
		return name + ": " + reason, nil
	}

	if err := checkFormat(object); err != nil {
		return fmt.Sprintf("%s: %s", name, err), nil
	}

	due, err := manifestsDue(object)
	if err != nil {
		return fmt.Sprintf("%s: its record %q cannot be read: %s", name, manifestsKey, err), nil
	}

	if due != nil {
		return fmt.Sprintf("%s: the bootstrap manifests have not been synced since the roll of run %s", name, due.Run), nil
	}

	for key, text := range entriesOf(object) {
		entry, err := decodeEntry(text)
		if err != nil {
			return fmt.Sprintf("%s: its entry %q cannot be read: %s", name, key, err), nil
		}

		if entry.Awaited() {
			return fmt.Sprintf("%s: the upgrade of node %s to Talos %s is unfinished (phase %s)", name, entry.Node, entry.Target, entry.Phase), nil
		}
	}

	return c.remove(ctx, name, c.core.Delete().Namespace(Namespace).Resource("configmaps").Name(JournalName), object.ObjectMeta)
}

// forgetPublished deletes the published ConfigMap. If it is kept, its name and the reason are returned.
func (c *Client) forgetPublished(ctx context.Context, id string) (kept string, err error) {
	name := "ConfigMap " + Namespace + "/" + PublishedName

	object, err := c.readConfigMap(ctx, PublishedName)
	if err != nil || object == nil {
		return "", err
	}

	if reason := foreign(object.ObjectMeta, id); reason != "" {
		return name + ": " + reason, nil
	}

	return c.remove(ctx, name, c.core.Delete().Namespace(Namespace).Resource("configmaps").Name(PublishedName), object.ObjectMeta)
}

// remove deletes the object as it was read. If it has been written since, it is kept, and the reason is returned. If it
// is gone already, that is no error.
func (c *Client) remove(ctx context.Context, name string, request *rest.Request, read metav1.ObjectMeta) (kept string, err error) {
	err = change(ctx, "delete the "+name, request.Body(&metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion},
	}), nil)

	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return "", nil
	case errors.Is(err, cluster.ErrConflict):
		return name + ": somebody wrote to it just now", nil
	default:
		return "", err
	}
}
