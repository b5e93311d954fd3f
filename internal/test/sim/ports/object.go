// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// check compares resource versions the way the API server does: an object that
// exists cannot be created, and one that was written since cannot be updated.
func check(what, given, standing string, exists bool) error {
	if exists != (given != "") || exists && given != standing {
		return fmt.Errorf("unable to write %s: %w", what, cluster.ErrConflict)
	}

	return nil
}

func (c *Cluster) writeLease(by string, lease cluster.Lease) (cluster.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.putLease(by, lease)
}

// putLease writes the lease. The caller holds the mutex.
func (c *Cluster) putLease(by string, lease cluster.Lease) (cluster.Lease, error) {
	if err := check("the lease kube-system/talosupgrade", lease.ResourceVersion, c.lease.ResourceVersion, c.hasLease); err != nil {
		return cluster.Lease{}, err
	}

	action := "renew"

	switch {
	case lease.Holder == "":
		action = "release"
	case lease.Holder != c.lease.Holder:
		action = "acquire"
	}

	// Who writes the lease leaves the annotation of others as it is.
	lease.Suspended = c.lease.Suspended
	lease.ResourceVersion = c.next()
	c.lease, c.hasLease = lease, true
	c.record("", history.KindLease, map[string]string{"holder": lease.Holder, "action": action, "by": by})

	return lease, nil
}

// HoldLease writes the lease as another program does, whoever had it before.
// Renewing it is the caller's affair; an empty holder releases it.
func (c *Cluster) HoldLease(holder string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	lease := c.lease
	if lease.Holder != holder {
		lease.Acquired = c.now()
	}

	lease.Holder, lease.Renewed, lease.Duration = holder, c.now(), 30*time.Second

	_, err := c.putLease("other", lease)

	return err
}

// Suspend annotates the lease as a person does with kubectl; nil takes the annotation
// away. There must be a lease.
func (c *Cluster) Suspend(suspension *cluster.Suspension) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.lease.Suspended, c.lease.ResourceVersion = suspension, c.next()
}

// writeSuspension annotates the lease, or takes the annotation away, and makes a lease
// where there is none.
func (c *Cluster) writeSuspension(by string, lease cluster.Lease, reason *string) (cluster.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := check("the lease kube-system/talosupgrade", lease.ResourceVersion, c.lease.ResourceVersion, c.hasLease); err != nil {
		return cluster.Lease{}, err
	}

	c.lease.Suspended = nil
	if reason != nil {
		c.lease.Suspended = &cluster.Suspension{Reason: *reason, By: by, Since: c.now()}
	}

	c.lease.ResourceVersion, c.hasLease = c.next(), true

	return c.lease, nil
}

// Lease is the lease as it stands.
func (c *Cluster) Lease() cluster.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.lease
}

// Annotations are those of the published object, by key without prefix.
func (c *Cluster) Annotations() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return maps.Clone(c.noted)
}

func (c *Cluster) annotate(client string, changes map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, key := range slices.Sorted(maps.Keys(changes)) {
		value := changes[key]
		if c.noted[key] == value {
			continue
		}

		if value == "" {
			delete(c.noted, key)
		} else {
			c.noted[key] = value
		}

		c.record("", history.KindAnnotation, map[string]string{
			"object": "ConfigMap/kube-system/talosupgrade", "key": key, "value": value, "by": "client", "client": client,
		})
	}
}

// watchInterval is how often a lease is looked at to see whether it moves.
const watchInterval = time.Second

// forget removes what is left of an upgrade, and says what stays and why.
func (c *Cluster) forget(ctx context.Context, client string) (kept []string, err error) {
	standing := c.Lease()

	for waited := time.Duration(0); standing.Holder != "" && waited < 30*time.Second; waited += watchInterval {
		if err := c.world.Clock().Sleep(ctx, watchInterval); err != nil {
			return nil, err
		}

		if current := c.Lease(); current.ResourceVersion != standing.ResourceVersion && current.Holder != "" {
			return []string{"lease kube-system/talosupgrade: " + current.Holder + " holds it and is at work"}, nil
		}
	}

	c.mu.Lock()
	if c.hasLease {
		c.lease, c.hasLease = cluster.Lease{}, false
		c.record("", history.KindLease, map[string]string{"holder": "", "action": "release", "by": "client"})
	}

	for _, open := range c.journal.Entries {
		if open.Open() {
			kept = append(kept, fmt.Sprintf("ConfigMap kube-system/talosupgrade-journal: the upgrade of node %s is unfinished", open.Node))
		}
	}

	if due := c.journal.Manifests; due != nil {
		kept = append(kept, "ConfigMap kube-system/talosupgrade-journal: the bootstrap manifests have not been synced since the roll of run "+due.Run)
	}

	if len(kept) == 0 {
		for key, closed := range c.journal.Entries {
			if err := c.recordEntry(client, key, closed, cluster.Entry{}, false); err != nil {
				c.mu.Unlock()

				return nil, err
			}
		}

		c.recordHolder("client", client, "")

		if err := c.recordSnapshot(client, c.journal.Snapshot, nil); err != nil {
			c.mu.Unlock()

			return nil, err
		}

		c.journal = cluster.Journal{}
	}
	c.mu.Unlock()

	gone := map[string]string{}
	for key := range c.Annotations() {
		gone[key] = ""
	}

	c.annotate(client, gone)

	return kept, nil
}

// objects are those of any kind that a test put into the cluster, by
// "apiVersion/Kind" and "namespace/name". Only these kinds are served.
type objects map[string]map[string]map[string]any

func kindKey(apiVersion, kind string) string { return apiVersion + "/" + kind }

// ServeKind has the cluster serve a kind of objects, of which there may be none.
func (c *Cluster) ServeKind(apiVersion, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.objects.serve(kindKey(apiVersion, kind))
}

func (o objects) serve(key string) {
	if o[key] == nil {
		o[key] = map[string]map[string]any{}
	}
}

// SetObject puts an object into the cluster, or another one in its place; the
// cluster then serves its kind. The object need not repeat what the arguments
// say, and has to be one that JSON can express.
func (c *Cluster) SetObject(apiVersion, kind, namespace, name string, object map[string]any) {
	stored := jsonCopy(object)
	if stored == nil {
		stored = map[string]any{}
	}

	metadata, _ := stored["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}

	metadata["name"] = name
	if namespace != "" {
		metadata["namespace"] = namespace
	}

	stored["apiVersion"], stored[keyKind], stored["metadata"] = apiVersion, kind, metadata

	c.mu.Lock()
	defer c.mu.Unlock()

	c.objects.serve(kindKey(apiVersion, kind))
	c.objects[kindKey(apiVersion, kind)][namespace+"/"+name] = stored
}

// RemoveObject takes an object away; its kind is still served.
func (c *Cluster) RemoveObject(apiVersion, kind, namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.objects[kindKey(apiVersion, kind)], namespace+"/"+name)
}

// Objects implements [cluster.Objects].
func (c *Client) Objects(ctx context.Context, query cluster.ObjectQuery) (found []map[string]any, err error) {
	err = c.look(ctx, "Objects", "", func() error {
		found, err = c.cluster.query(query)

		return err
	})

	return found, err
}

// query lists the objects that a query is about, by namespace and name.
func (c *Cluster) query(query cluster.ObjectQuery) ([]map[string]any, error) {
	what := fmt.Sprintf("unable to list %s %s", query.APIVersion, query.Kind)

	if query.APIVersion == "v1" && query.Kind == "Secret" {
		return nil, fmt.Errorf("%s: %w: secrets are not read", what, cluster.ErrRefused)
	}

	chosen, err := labels.Parse(query.Selector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	kept, served := c.objects[kindKey(query.APIVersion, query.Kind)]
	if !served {
		return nil, fmt.Errorf("%s: %w: the cluster serves no such kind", what, cluster.ErrNotFound)
	}

	nowhere := func(key string) bool { return strings.HasPrefix(key, "/") }
	if query.Namespace != "" && slices.ContainsFunc(slices.Collect(maps.Keys(kept)), nowhere) {
		return nil, fmt.Errorf("%s: %w: objects of the kind are in no namespace; leave the namespace out", what, cluster.ErrRefused)
	}

	var found []map[string]any

	for _, key := range slices.SortedFunc(maps.Keys(kept), byNamespaceAndName) {
		namespace, name, _ := strings.Cut(key, "/")

		switch {
		case query.Namespace != "" && namespace != query.Namespace:
		case query.Name != "" && name != query.Name:
		case !chosen.Matches(labels.Set(labelsOf(kept[key]))):
		default:
			found = append(found, jsonCopy(kept[key]))
		}
	}

	return found, nil
}

func byNamespaceAndName(a, b string) int {
	return slices.Compare(strings.SplitN(a, "/", 2), strings.SplitN(b, "/", 2))
}

func labelsOf(object map[string]any) map[string]string {
	metadata, _ := object["metadata"].(map[string]any)
	given, _ := metadata["labels"].(map[string]any)
	read := make(map[string]string, len(given))

	for key, value := range given {
		read[key], _ = value.(string)
	}

	return read
}

// jsonCopy is an object as it would come over the wire: whole numbers are int64,
// all others float64. It is nil for what JSON cannot express.
func jsonCopy(object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	if err != nil {
		return nil
	}

	var read map[string]any
	if utiljson.Unmarshal(text, &read) != nil {
		return nil
	}

	return read
}
