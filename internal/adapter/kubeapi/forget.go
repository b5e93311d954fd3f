// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// watchInterval is how often a held lease is looked at to see it move.
	watchInterval = time.Second
	// defaultLease and longestLease bound the watching of a lease that says
	// nothing, or nonsense, about its duration.
	defaultLease = 30 * time.Second
	longestLease = time.Minute
)

// Forget removes what an upgrade left in the cluster with the given ID: the
// published ConfigMap, the journal unless something in it is unfinished (the
// record of a snapshot of etcd never is), and the lease unless its holder is
// alive, which takes up to the lease's duration to find out. It deletes nothing
// that it does not know to be ours, and tells what it kept and why.
func (c *Client) Forget(ctx context.Context, id string) ([]string, error) {
	// The lease comes first: while somebody holds it, everything else is in use.
	reason, err := c.forgetLease(ctx, id)
	if err != nil {
		return nil, err
	}

	var (
		kept     []string
		failures []error
	)

	if reason != "" {
		return []string{reason, "the journal and the published annotations, which go with the lease"}, nil
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

func (c *Client) forgetLease(ctx context.Context, id string) (kept string, err error) {
	name := "lease " + Namespace + "/" + LeaseName

	object, err := c.readLease(ctx)
	if err != nil || object == nil {
		return "", err
	}

	if reason := foreign(object.ObjectMeta, id); reason != "" {
		return name + ": " + reason, nil
	}

	moving, err := c.moves(ctx, leaseFrom(object))
	if err != nil {
		return "", err
	}

	if moving {
		return fmt.Sprintf("%s: %s holds it and is at work", name, leaseFrom(object).Holder), nil
	}

	return c.remove(ctx, name, c.coordination.Delete().Namespace(Namespace).Resource("leases").Name(LeaseName), object.ObjectMeta)
}

// moves tells whether somebody renews the lease, judged on our own clock only.
func (c *Client) moves(ctx context.Context, lease cluster.Lease) (bool, error) {
	duration := lease.Duration
	if duration <= 0 || duration > longestLease {
		duration = defaultLease
	}

	for waited := time.Duration(0); lease.Holder != "" && waited < duration; waited += watchInterval {
		if err := c.sleep(ctx, watchInterval); err != nil {
			return false, err
		}

		current, err := c.Lease(ctx)
		if err != nil {
			return false, err
		}

		if current.ResourceVersion != lease.ResourceVersion {
			return current.Holder != "", nil
		}
	}

	return false, nil
}

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

		if entry.Open() {
			return fmt.Sprintf("%s: the upgrade of node %s to Talos %s is unfinished (phase %s)", name, entry.Node, entry.Target, entry.Phase), nil
		}
	}

	return c.remove(ctx, name, c.core.Delete().Namespace(Namespace).Resource("configmaps").Name(JournalName), object.ObjectMeta)
}

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

// remove deletes the object as it was read, and nothing newer.
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
