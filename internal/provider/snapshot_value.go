// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// attrSnapshot is the last snapshot of etcd.
const attrSnapshot = "snapshot"

// snapshotSchema is what snapshot looks like. Like status it carries no plan
// modifier.
func snapshotSchema() schema.Attribute {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}

	return schema.SingleNestedAttribute{
		MarkdownDescription: "The last snapshot of etcd that was saved because of `etcd_snapshot`; null when there was none.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"path":                text("File, on the machine that ran Terraform."),
			"size":                schema.Int64Attribute{MarkdownDescription: "Length of the file in bytes.", Computed: true},
			"sha256":              text("SHA-256 checksum of the file, in hexadecimal digits."),
			"taken":               text("When it was taken, in UTC, such as `2026-03-14T01:59:26Z`."),
			attrTalosVersion:      text("Talos version that the cluster was about to be brought to; null where Talos was not managed."),
			attrKubernetesVersion: text("Kubernetes version that the cluster was about to be brought to; null where Kubernetes was not managed."),
		},
	}
}

func snapshotTypes() map[string]attr.Type {
	return map[string]attr.Type{
		"path": types.StringType, "size": types.Int64Type, "sha256": types.StringType, "taken": types.StringType,
		attrTalosVersion: types.StringType, attrKubernetesVersion: types.StringType,
	}
}

// snapshotValue is the snapshot that the journal remembers. Where the journal
// could not be read, or holds none any more, earlier stays: the file does too.
// Earlier may be null or unknown.
func snapshotValue(journal *cluster.Journal, earlier types.Object) types.Object {
	if journal == nil || journal.Snapshot == nil {
		if earlier.IsUnknown() {
			return types.ObjectNull(snapshotTypes())
		}

		return earlier
	}

	taken := *journal.Snapshot

	return types.ObjectValueMust(snapshotTypes(), map[string]attr.Value{
		"path":                types.StringValue(taken.Path),
		"size":                types.Int64Value(taken.Size),
		"sha256":              types.StringValue(taken.SHA256),
		"taken":               textValue(moment(taken.Taken)),
		attrTalosVersion:      versionValue(taken.Target.Talos),
		attrKubernetesVersion: versionValue(taken.Target.Kubernetes),
	})
}

// moment is the time as state holds it; empty where it is not known.
func moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}

	return at.UTC().Format(time.RFC3339)
}
