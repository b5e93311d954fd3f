// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// newFollowAction is talosupgrade_follow.
func newFollowAction() action.Action {
	return &clusterAction{
		name: "follow", doing: "follow the upgrade of the cluster", limit: defaultWriteTimeout,
		text: "Says what the upgrade publishes that somebody else is running now, a line for each change, until it has ended. It fails where that upgrade failed, and ends at once where nobody upgrades the cluster. " +
			"It writes nothing.",
		attributes: func(ctx context.Context) map[string]schema.Attribute {
			return map[string]schema.Attribute{attrPublishTo: input(clusterSchema(ctx).Attributes[attrPublishTo])}
		},
		validate: validatePublishTo, invoke: follow,
	}
}

func follow(ctx context.Context, on *invocation) error {
	made := newClusterModel(version.Version{}, version.Version{})

	on.diagnostics.Append(on.config.GetAttribute(ctx, path.Root(attrPublishTo), &made.PublishTo)...)

	if on.diagnostics.HasError() {
		return nil
	}

	id, err := clusterID(ctx, on.reached)
	if err != nil {
		return err
	}

	store, err := on.reached.storeOf(id, made.publication())
	if err == nil && store == nil {
		err = fmt.Errorf("there is no connection to the Kubernetes API, which holds %s: %w", made.publication(), cluster.ErrUnreachable)
	}

	if err != nil {
		return err
	}

	options := on.clusters.engine(on.reached, nil)
	options.Observers = []cluster.Observer{on}

	told := &published{store: store, on: on}

	end, err := engine.New(options).Follow(ctx, told.look)
	if err != nil {
		return err
	}

	return told.ended(end)
}

// published is what a run of somebody else says of each product.
type published struct {
	store publish.Store
	on    *invocation

	said map[version.Product]string
	// went are the products that the run was seen to change.
	went map[version.Product]bool
	last map[string]string
}

// look says what is new.
func (p *published) look(ctx context.Context) error {
	read, err := p.store.Read(ctx)
	if err != nil {
		return err
	}

	first := p.said == nil
	if first {
		p.said, p.went = map[version.Product]string{}, map[version.Product]bool{}
	}

	p.last = read

	for _, product := range []version.Product{version.Talos, version.Kubernetes} {
		status, message := read[protocol.Key(product, protocol.FieldStatus)], read[protocol.Key(product, protocol.FieldMessage)]
		if status == "" {
			continue
		}

		if line := fmt.Sprintf("%s %s: %s", product.Name(), status, message); line != p.said[product] {
			p.went[product] = p.went[product] || !first || protocol.Status(status).Busy()
			p.said[product] = line
			p.on.say("%s", line)
		}
	}

	return nil
}

// errFollowed is the cause of a failure that is another run's.
var errFollowed = errors.New("another run failed")

// ended is the result of a run that has ended: an error where it did not reach its end.
func (p *published) ended(end engine.FollowEnd) error {
	const remedy = "The error of its terraform apply says more. Run terraform apply again: it continues where the cluster is."

	switch end {
	case engine.NobodyRuns:
		p.on.say("Nobody upgrades this cluster now.")

		return nil
	case engine.RunDied:
		return &say.Failure{
			Summary: "Unable to follow the upgrade to its end: the run is gone",
			Seen:    "It stopped renewing its lease, and did not say how it ended.",
			State:   p.state(), Remedy: "Run terraform apply again: it continues where the cluster is.", Err: errFollowed,
		}
	}

	for _, product := range []version.Product{version.Talos, version.Kubernetes} {
		status := protocol.Status(p.last[protocol.Key(product, protocol.FieldStatus)])

		switch {
		case !p.went[product]:
		case status == protocol.StatusFailed:
			return &say.Failure{
				Summary: "Unable to upgrade the cluster: the run that was followed failed",
				Seen:    sentence(p.last[protocol.Key(product, protocol.FieldMessage)]), State: p.state(), Remedy: remedy, Err: errFollowed,
			}
		case status.Busy():
			return &say.Failure{
				Summary: "Unable to tell how the upgrade ended", State: p.state(), Remedy: remedy, Err: errFollowed,
				Seen: fmt.Sprintf("The run gave its lease back, and %s goes on to say that %s is being upgraded.", p.store, product.Name()),
			}
		}
	}

	if len(p.said) == 0 {
		p.on.say("The upgrade has ended. It published nothing in %s.", p.store)
	} else {
		p.on.say("The upgrade has ended.")
	}

	return nil
}

// state is what was published of nodes that failed, and when it was last.
func (p *published) state() string {
	text := "Published in " + p.store.String()
	if at, err := time.Parse(time.RFC3339, p.last[protocol.KeyLastUpdate]); err == nil {
		text += " at " + at.UTC().Format(time.RFC3339)
	}

	if nodes := p.last[protocol.KeyFailedNodes]; nodes != "" {
		text += ", with the failed nodes " + nodes
	}

	return text + "."
}
