// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var (
	_ list.ListResource              = (*clusterList)(nil)
	_ list.ListResourceWithConfigure = (*clusterList)(nil)
)

// clusterList lists the clusters that the provider block reaches, as talosupgrade_cluster resources: those of the
// contexts in its talosconfig.
type clusterList struct {
	clusters *connection.Clusters
}

func newClusterList() list.ListResource { return &clusterList{} }

// clusterListModel is the config block of the list.
type clusterListModel struct {
	Contexts types.List `tfsdk:"contexts"`
}

// Metadata implements [list.ListResource].
func (l *clusterList) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = attrname.TypeName + "_cluster"
}

// Configure implements [list.ListResourceWithConfigure].
func (l *clusterList) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	l.clusters = connection.FromProviderData(req.ProviderData, &resp.Diagnostics)
}

// ListResourceConfigSchema implements [list.ListResource].
func (l *clusterList) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Lists the clusters in the contexts of the provider's talosconfig, so that `terraform query` finds them and writes their configuration. " +
			"It writes to no cluster. Requires Terraform 1.14 or newer; OpenTofu has no queries.",
		Attributes: map[string]schema.Attribute{
			attrname.Contexts: schema.ListAttribute{
				MarkdownDescription: "Contexts of the talosconfig to list. If unset, all contexts.",
				ElementType:         types.StringType,
				Optional:            true,
				Validators: []validator.List{
					listvalidator.SizeAtLeast(1), listvalidator.UniqueValues(), listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1)),
				},
			},
		},
	}
}

// List implements [list.ListResource]. A context that cannot be listed is a warning. Warnings come first, because
// the command line stops reading once it has as many results as it wants.
func (l *clusterList) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	var model clusterListModel

	diagnostics := req.Config.Get(ctx, &model)
	if diagnostics.HasError() {
		stream.Results = list.ListResultsStreamDiagnostics(diagnostics)

		return
	}

	refs, diagnostics := l.chosen(ctx, model)
	if diagnostics.HasError() {
		stream.Results = list.ListResultsStreamDiagnostics(diagnostics)

		return
	}

	listed, warnings := l.distinct(refs, l.clusters.Identities(ctx, refs))
	if req.Limit > 0 && int64(len(listed)) > req.Limit {
		listed = listed[:req.Limit]
	}

	results, unseen := l.results(ctx, req, listed)
	warnings.Append(unseen...)

	if ctx.Err() != nil {
		results, warnings = nil, diag.Diagnostics{connection.Problem("list the clusters", l.clusters.Access, cluster.Ended(ctx))}
	}

	if len(warnings) > 0 {
		results = append([]list.ListResult{{Diagnostics: warnings}}, results...)
	}

	stream.Results = slices.Values(results)
}

// chosen returns the contexts that the model selects.
func (l *clusterList) chosen(ctx context.Context, model clusterListModel) ([]connection.ContextRef, diag.Diagnostics) {
	refs, err := l.clusters.Access.Contexts()
	if err != nil {
		return nil, diag.Diagnostics{connection.Problem("list the clusters", l.clusters.Access, err)}
	}

	if model.Contexts.IsNull() {
		return refs, nil
	}

	var (
		wanted []string
		chosen []connection.ContextRef
		names  []string
	)

	diagnostics := model.Contexts.ElementsAs(ctx, &wanted, false)

	for _, ref := range refs {
		if ref.Name != "" {
			names = append(names, ref.Name)
		}

		if slices.Contains(wanted, ref.Name) {
			chosen = append(chosen, ref)
		}
	}

	for index, name := range wanted {
		if !slices.Contains(names, name) {
			there := "there are " + readable.QuotedList(names)
			if len(names) == 0 {
				there = "what the provider block gives access to is one cluster, without contexts"
			}

			diagnostics.AddAttributeError(path.Root(attrname.Contexts).AtListIndex(index), "Unknown context",
				fmt.Sprintf("%s names %q, which is no context of the talosconfig: %s. Correct it, or remove %s to list all of them.", attrname.Contexts, name, there, attrname.Contexts))
		}
	}

	return chosen, diagnostics
}

// listedCluster is a cluster with the context that it is listed from.
type listedCluster struct {
	connection.ContextRef

	id string
}

// distinct returns the clusters that the contexts reach, each with one context: the provider's own if it is one of
// several, otherwise the first by name.
func (l *clusterList) distinct(refs []connection.ContextRef, identities []connection.Identity) ([]listedCluster, diag.Diagnostics) {
	var (
		clusters []listedCluster
		warnings diag.Diagnostics
	)

	contexts := map[string][]string{} // By cluster.

	for index, found := range identities {
		if found.Err != nil {
			warnings.Append(l.unlisted(refs[index], found.Err))

			continue
		}

		same := func(one listedCluster) bool { return one.id == found.ID }
		contexts[found.ID] = append(contexts[found.ID], refs[index].Name)

		switch at := slices.IndexFunc(clusters, same); {
		case at < 0:
			clusters = append(clusters, listedCluster{refs[index], found.ID})
		case refs[index].Wanted == "":
			clusters[at].ContextRef = refs[index]
		}
	}

	for _, one := range clusters {
		if reaching := contexts[one.id]; len(reaching) > 1 {
			warnings.AddWarning(diagnostic.About("Several contexts reach one cluster", one.id),
				fmt.Sprintf("The contexts %s reach cluster %s. It is listed once, from %q.\n\nTo choose another one, name those to list with %s.",
					readable.QuotedList(reaching), one.id, one.Name, attrname.Contexts))
		}
	}

	return clusters, warnings
}

// results returns the clusters as requested. Only clusters that are included as a whole are observed.
func (l *clusterList) results(ctx context.Context, req list.ListRequest, listed []listedCluster) ([]list.ListResult, diag.Diagnostics) {
	made := make([]list.ListResult, len(listed))
	failed := make([]diag.Diagnostic, len(listed))

	connection.Concurrently(len(listed), func(index int) {
		one := listed[index]

		result := req.NewListResult(ctx)
		result.DisplayName = cmp.Or(one.Name, l.clusters.DisplayNameOf(one.ContextRef))
		result.Diagnostics.Append(result.Identity.Set(ctx, identityModel{ID: types.StringValue(one.id)})...)

		if req.IncludeResource {
			bounded, cancel := context.WithTimeout(ctx, defaultReadTimeout)
			defer cancel()

			seen, err := l.clusters.Observe(bounded, one.Wanted)
			if err != nil {
				failed[index] = l.unlisted(one.ContextRef, err)

				return
			}

			model, diagnostics := imported(ctx, seen, one.Wanted)
			result.Diagnostics.Append(diagnostics...)
			result.Diagnostics.Append(result.Resource.Set(ctx, model)...)
		}

		made[index] = result
	})

	var (
		results  []list.ListResult
		warnings diag.Diagnostics
	)

	for index, result := range made {
		if failed[index] != nil {
			warnings.Append(failed[index])
		} else {
			results = append(results, result)
		}
	}

	return results, warnings
}

// unlisted returns the warning about a context that could not be listed.
func (l *clusterList) unlisted(ref connection.ContextRef, err error) diag.Diagnostic {
	return diagnostic.AsWarning(connection.Problem("list the cluster", l.clusters.Access, err), diagnostic.About(connection.SummaryUnobserved, l.clusters.DisplayNameOf(ref)),
		"It is not listed; the clusters of the other contexts are.")
}
