// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"io"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

// newEtcdSnapshotAction returns talosupgrade_etcd_snapshot.
func newEtcdSnapshotAction() action.Action {
	return &clusterAction{
		name: "etcd_snapshot", doing: "save a snapshot of etcd", limit: time.Hour,
		text: "Saves a snapshot of etcd now, verified and with its checksum beside it, as `etcd_snapshot` of `talosupgrade_cluster` does before a roll. " +
			"It only reads from the cluster, so it may run during an upgrade or a suspension. A roll still takes its own snapshot.",
		attributes: func(context.Context) map[string]schema.Attribute {
			return map[string]schema.Attribute{
				attrname.Directory: schema.StringAttribute{
					MarkdownDescription: "Directory for `<cluster>-<UTC>.db` and its `.sha256`, created if missing. Only the owner can read them: a snapshot holds every Secret of the cluster.",
					Required:            true,
					Validators:          []validator.String{directoryText("")},
				},
			}
		},
		invoke: saveSnapshot,
	}
}

func saveSnapshot(ctx context.Context, on *invocation) error {
	var directory types.String

	on.diagnostics.Append(on.config.GetAttribute(ctx, path.Root(attrname.Directory), &directory)...)

	if on.diagnostics.HasError() {
		return nil
	}

	options := on.clusters.EngineOptions(on.reached, nil)
	options.Observers = []cluster.Observer{on}

	store := countedStore{SnapshotStore: snapshot.New(directory.ValueString()), on: on, clock: options.Clock}

	saved, err := engine.New(options).SaveSnapshot(ctx, store)
	if err != nil {
		return err
	}

	on.say("Saved %s, %d bytes, SHA-256 %s.", saved.Path, saved.Size, saved.SHA256)

	return nil
}

// countedStore reports the progress of saving a snapshot.
type countedStore struct {
	cluster.SnapshotStore

	on    *invocation
	clock engine.Clock
}

// Save implements [cluster.SnapshotStore].
func (s countedStore) Save(ctx context.Context, name string, taken time.Time, stream func(context.Context, io.Writer) error) (cluster.EtcdSnapshot, error) {
	return s.SnapshotStore.Save(ctx, name, taken, func(ctx context.Context, to io.Writer) error {
		return stream(ctx, &countedWriter{Writer: to, store: s, said: s.clock.Now()})
	})
}

// countEvery is how often the progress is reported.
const countEvery = 5 * time.Second

type countedWriter struct {
	io.Writer

	store countedStore
	total int64
	said  time.Time
}

// Write implements [io.Writer].
func (w *countedWriter) Write(data []byte) (int, error) {
	written, err := w.Writer.Write(data)
	w.total += int64(written)

	if now := w.store.clock.Now(); now.Sub(w.said) >= countEvery {
		w.said = now
		w.store.on.say("%.1f MiB so far", float64(w.total)/(1<<20))
	}

	return written, err
}
