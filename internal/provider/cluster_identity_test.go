// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

// fakeContexts are the clusters that the contexts of a talosconfig reach.
type fakeContexts map[string]*fakeCluster

// fleet has a cluster for each name, which is the name of its context as well.
func fleet(names ...string) fakeContexts {
	made := fakeContexts{}

	for _, name := range names {
		made[name] = threeNodes("1.13.4", "1.34.2")
		made[name].id = "id-of-" + name
	}

	return made
}

// clusters is a provider instance with the talosconfig, whose own context that is.
func (f fakeContexts) clusters(t *testing.T, own string) *connection.Clusters {
	t.Helper()

	for _, fake := range f {
		fake.clusters(t) // counts the connections
	}

	shared := &connection.Settings{Version: "test", Clock: engine.RealClock()}
	shared.Dial = func(ctx context.Context, shared *connection.Settings, access connection.Credentials, wanted string, remembered connection.KubeconfigCache) (*connection.Connection, error) {
		name := access.ContextName(wanted)
		if name == "" && len(f) == 1 {
			name = slices.Collect(maps.Keys(f))[0]
		}

		return f[name].dial(ctx, shared, access, wanted, remembered)
	}

	return connection.NewClusters(shared, connection.Credentials{
		Talosconfig: "contexts:\n  " + strings.Join(slices.Sorted(maps.Keys(f)), ": {}\n  ") + ": {}\n", Context: own,
	})
}

// storedIdentity is the identity in an answer of the provider; "none" where there is none.
func (d driven) storedIdentity(data *tfprotov6.ResourceIdentityData) string {
	d.Helper()

	if data == nil {
		return "none"
	}

	kind := tftypes.Object{AttributeTypes: map[string]tftypes.Type{attrname.ID: tftypes.String}}

	value, err := data.IdentityData.Unmarshal(kind)
	if err != nil {
		d.Fatal(err)
	}

	if value.IsNull() {
		return "none"
	}

	var id string
	if err := d.attribute(value, attrname.ID).As(&id); err != nil {
		d.Fatal(err)
	}

	return id
}

func (d driven) identityData(id string) *tfprotov6.ResourceIdentityData {
	d.Helper()

	kind := tftypes.Object{AttributeTypes: map[string]tftypes.Type{attrname.ID: tftypes.String}}

	return &tfprotov6.ResourceIdentityData{IdentityData: d.dynamic(tftypes.NewValue(kind, map[string]tftypes.Value{attrname.ID: tftypes.NewValue(tftypes.String, id)}))}
}

// TestIdentity_IsStoredWhateverWasStoredBefore goes through the framework, which takes a
// missing identity for a failure after the work was done.
func TestIdentity_IsStoredWhateverWasStoredBefore(t *testing.T) {
	away := func(f *fakeCluster) { f.down = cluster.ErrUnreachable }
	nameless := func(f *fakeCluster) { f.id, f.kubernetesDown = "", cluster.ErrUnreachable }
	unchanged := func(*fakeCluster) {}

	for name, test := range map[string]struct {
		change       func(*fakeCluster)
		state        string // the ID in state
		before, want string
	}{
		"state without identity":                 {unchanged, "cluster-a", "", "cluster-a"},
		"state with identity":                    {unchanged, "cluster-a", "cluster-a", "cluster-a"},
		"cluster away, state without identity":   {away, "cluster-a", "", "cluster-a"},
		"cluster that does not tell":             {nameless, "cluster-a", "", "cluster-a"},
		"cluster that never told":                {nameless, "", "", ""},
		"cluster away that never told":           {away, "", "", ""},
		"cluster that tells for the first time":  {unchanged, "", "", "cluster-a"},
		"cluster that tells after it could not":  {unchanged, "", "unknown so far", "cluster-a"},
		"cluster with the UID in place of an ID": {func(f *fakeCluster) { f.id = "" }, "uid-of-kube-system", "uid-of-kube-system", "uid-of-kube-system"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			d := drive(t, fake)

			state := []byte(strings.Replace(earlierState, `"cluster-a"`, `"`+test.state+`"`, 1))
			if test.state == "" {
				state = []byte(strings.Replace(earlierState, `"cluster-a"`, "null", 1))
			}

			test.change(fake)

			request := &tfprotov6.ReadResourceRequest{TypeName: attrname.TypeName + "_cluster", CurrentState: d.read(state)}
			if test.before != "" {
				request.CurrentIdentity = d.identityData(strings.TrimPrefix(test.before, "unknown so far"))
			}

			read, err := d.server.ReadResource(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}

			for _, told := range told.NotedOnWire(t, read.Diagnostics) {
				if told.Severity == tfprotov6.DiagnosticSeverityError {
					t.Errorf("%s: %s", told.Summary, told.Detail)
				}
			}

			if got := d.storedIdentity(read.NewIdentity); got != test.want {
				t.Errorf("the identity is %q, want %q", got, test.want)
			}
		})
	}
}

// TestIdentity_IsStoredByAnUpdate: a command line that knows no identities hands over none,
// and a plan without a refresh has none either.
func TestIdentity_IsStoredByAnUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fakeCluster)
		fails  bool
	}{
		"done":    {func(*fakeCluster) {}, false},
		"refused": {func(f *fakeCluster) { f.nodes[1].talos, f.roles = "1.13.0", []string{"os:reader"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			d := drive(t, fake)
			state := d.refreshed()

			test.change(fake)

			done, err := d.server.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
				TypeName: attrname.TypeName + "_cluster", PriorState: state, PlannedState: state,
				Config: d.dynamic(empty(d.kind, map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.4")})),
			})
			if err != nil {
				t.Fatal(err)
			}

			if (len(done.Diagnostics) > 0) != test.fails {
				t.Errorf("got %v", done.Diagnostics)
			}

			if got := d.storedIdentity(done.NewIdentity); got != "cluster-a" {
				t.Errorf("the identity is %q", got)
			}
		})
	}
}

// TestIdentity_IsStoredByTheFirstApply: also of a cluster that tells nobody which one it is,
// because a create that fails after the work was done taints the resource.
func TestIdentity_IsStoredByTheFirstApply(t *testing.T) {
	for id, change := range map[string]func(*fakeCluster){
		"cluster-a":          func(*fakeCluster) {},
		"uid-of-kube-system": func(f *fakeCluster) { f.id = "" },
		"":                   func(f *fakeCluster) { f.id, f.uidErr = "", cluster.ErrDenied },
	} {
		t.Run(id, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			change(fake)

			d := drive(t, fake)
			plan := stateOf(t, desired("1.13.4", "")).Raw

			done, err := d.server.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
				TypeName: attrname.TypeName + "_cluster", PriorState: d.dynamic(tftypes.NewValue(d.kind, nil)), PlannedState: d.dynamic(plan),
				Config: d.dynamic(empty(d.kind, map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.4")})),
			})
			if err != nil {
				t.Fatal(err)
			}

			d.silent(done.Diagnostics)

			if got := d.storedIdentity(done.NewIdentity); got != id {
				t.Errorf("the identity is %q, want %q", got, id)
			}
		})
	}
}

// TestIdentity_KeepsTheStateWhenAContextIsRenamed: the configuration may have the new name
// already, which only the plan sees.
func TestIdentity_KeepsTheStateWhenAContextIsRenamed(t *testing.T) {
	clusters := connection.NewClusters(&connection.Settings{Dial: connection.Dial}, connection.Credentials{Talosconfig: "contexts:\n  uno: {}\n  due: {}\n"})
	state := stored(t, threeNodes("1.13.4", "1.34.2"), "1.13.4", "")
	state.Context = types.StringValue("north")

	got, diagnostics := read(t.Context(), t, clusters, state)
	check(t, diagnostics, outcome{diag.SeverityWarning, `context "north" does not exist, there are "due", "uno"`})

	if !stateOf(t, got).Raw.Equal(stateOf(t, state).Raw) {
		t.Error("the state changed")
	}

	// Where the configuration names the old one as well the plan fails.
	_, diagnostics = planned(t, clusters, state, state)
	check(t, diagnostics, outcome{diag.SeverityError, "Unusable credentials"})
}

// byIdentity imports the cluster with the ID.
func byIdentity(ctx context.Context, t *testing.T, clusters *connection.Clusters, id string) (*clusterModel, diag.Diagnostics) {
	t.Helper()

	identity := identityOf(t, &clusterModel{ID: types.StringValue(id)})
	resp := resource.ImportStateResponse{State: stateOf(t, nil), Identity: identity}

	(&clusterResource{clusters: clusters}).ImportState(ctx, resource.ImportStateRequest{Identity: identity}, &resp)

	return modelOf(t, resp.State), told.Noted(t, resp.Diagnostics)
}

func TestImport_ByIdentityFindsTheContext(t *testing.T) {
	for name, test := range map[string]struct {
		own  string
		want types.String
	}{
		"the provider's own":              {"south", types.StringNull()},
		"another than the provider's own": {"north", types.StringValue("south")},
		"no own one":                      {"", types.StringValue("south")},
	} {
		t.Run(name, func(t *testing.T) {
			contexts := fleet("east", "north", "south")
			contexts["east"].down = cluster.ErrUnreachable

			// Nobody has to wait for the others where the own one is it.
			if test.own == "south" {
				contexts["north"].idErr = errors.New("was asked")
			}

			got, diagnostics := byIdentity(t.Context(), t, contexts.clusters(t, test.own), "id-of-south")
			check(t, diagnostics)

			if !got.Context.Equal(test.want) || got.ID.ValueString() != "id-of-south" || got.TalosVersion.ValueString() != "1.13.4" {
				t.Errorf("imported %s from context %s, want %s", got.ID, got.Context, test.want)
			}
		})
	}
}

func TestImport_ByIdentityThatNoContextReaches(t *testing.T) {
	contexts := fleet("east", "north", "south")
	contexts["east"].down = cluster.ErrUnreachable
	contexts["south"].id, contexts["south"].uidErr = "", cluster.ErrDenied

	_, diagnostics := byIdentity(t.Context(), t, contexts.clusters(t, "north"), "id-of-west")
	check(t, diagnostics, outcome{diag.SeverityError, `The import asks for cluster "id-of-west", which nothing reaches that the provider block gives access to:

- talosconfig context "north" reaches cluster id-of-north
- talosconfig context "east": unreachable
- talosconfig context "south": permission denied

Correct the ID`})
}

// TestImport_ManyAtOnceAskEachContextOnce: one that does not answer would keep each of them
// waiting.
func TestImport_ManyAtOnceAskEachContextOnce(t *testing.T) {
	contexts := fleet("east", "north", "south")
	contexts["east"].down = cluster.ErrUnreachable
	clusters := contexts.clusters(t, "")

	for _, id := range []string{"id-of-north", "id-of-south", "id-of-north"} {
		_, diagnostics := byIdentity(t.Context(), t, clusters, id)
		check(t, diagnostics)
	}

	if got := contexts["east"].dialled; got != 1 {
		t.Errorf("the context that does not answer was asked %d times", got)
	}
}

func TestImport_ByIdentityIsInterrupted(t *testing.T) {
	contexts := fleet("north")
	contexts["north"].down = context.Canceled
	clusters := contexts.clusters(t, "")

	interrupted, cancel := context.WithCancel(t.Context())
	cancel()

	_, diagnostics := byIdentity(interrupted, t, clusters, "id-of-north")
	check(t, diagnostics, outcome{diag.SeverityError, "Interrupted before it was done"})

	contexts["north"].down = nil

	if _, diagnostics := byIdentity(t.Context(), t, clusters, "id-of-north"); len(diagnostics) > 0 {
		t.Errorf("what was interrupted is remembered: %v", diagnostics)
	}
}

func TestImport_ByIdentityWithoutCredentials(t *testing.T) {
	t.Setenv("TALOSCONFIG", "")

	_, diagnostics := byIdentity(t.Context(), t, connection.NewClusters(&connection.Settings{Dial: connection.Dial}, connection.Credentials{}), "id-of-north")
	check(t, diagnostics, outcome{diag.SeverityError, "Missing credentials for the Talos API"})
}

// TestImport_ContextsWithinReach: credentials that belong to one cluster have no contexts to
// choose from.
func TestImport_ContextsWithinReach(t *testing.T) {
	t.Setenv("TALOSCONFIG", "")

	const two = "context: b\ncontexts:\n  a: {}\n  b: {}\n"

	certificate := &connection.ClientCertificate{}

	for name, test := range map[string]struct {
		access connection.Credentials
		want   []connection.ContextRef
		is     error
	}{
		"the current one is the provider's own": {connection.Credentials{Talosconfig: two}, []connection.ContextRef{{Wanted: "a", Name: "a"}, {Name: "b"}}, nil},
		"the one of the provider block is":      {connection.Credentials{Talosconfig: two, Context: "a"}, []connection.ContextRef{{Name: "a"}, {Wanted: "b", Name: "b"}}, nil},
		"the only one is":                       {connection.Credentials{Talosconfig: "contexts:\n  a: {}\n"}, []connection.ContextRef{{Name: "a"}}, nil},
		"none is":                               {connection.Credentials{Talosconfig: "contexts:\n  a: {}\n  b: {}\n"}, []connection.ContextRef{{Wanted: "a", Name: "a"}, {Wanted: "b", Name: "b"}}, nil},
		"a current one that is not there":       {connection.Credentials{Talosconfig: "context: c\ncontexts:\n  a: {}\n"}, []connection.ContextRef{{Wanted: "a", Name: "a"}}, nil},
		"the provider block names none of them": {connection.Credentials{Talosconfig: two, Context: "c"}, nil, connection.ErrCredentialsUnusable},
		"a talosconfig without contexts":        {connection.Credentials{Talosconfig: "contexts: {}\n"}, nil, connection.ErrCredentialsUnusable},
		"a certificate":                         {connection.Credentials{Certificate: certificate, Endpoints: []string{"10.5.0.2"}}, []connection.ContextRef{{}}, nil},
		"a management cluster":                  {connection.Credentials{From: &connection.CredentialsSource{}}, []connection.ContextRef{{}}, nil},
		"nothing":                               {connection.Credentials{}, nil, connection.ErrCredentialsMissing},
		"not known yet":                         {connection.Credentials{Unknown: []string{attrname.Talosconfig}}, nil, connection.ErrCredentialsUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.access.Contexts()
			if !slices.Equal(got, test.want) || !errors.Is(err, test.is) || (err != nil) != (test.is != nil) {
				t.Errorf("got %v, %v, want %v, %v", got, err, test.want, test.is)
			}
		})
	}
}
