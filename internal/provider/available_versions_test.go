// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// configOf is a configuration of a data source in which only the given
// attributes are set.
func configOf(t *testing.T, of schema.Schema, set map[string]tftypes.Value) tfsdk.Config {
	t.Helper()

	object, ok := of.Type().TerraformType(t.Context()).(tftypes.Object)
	if !ok {
		t.Fatal("the schema is no object")
	}

	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
	}

	for name, value := range set {
		if _, known := values[name]; !known {
			t.Fatalf("the schema has no %s", name)
		}

		values[name] = value
	}

	return tfsdk.Config{Schema: of, Raw: tftypes.NewValue(object, values)}
}

func textOf(value string) tftypes.Value { return tftypes.NewValue(tftypes.String, value) }

func textsOf(values ...string) tftypes.Value {
	elements := []tftypes.Value{}
	for _, value := range values {
		elements = append(elements, textOf(value))
	}

	return tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, elements)
}

// sourceOf is a release_source in which only the given attributes are set.
func sourceOf(set map[string]tftypes.Value) tftypes.Value {
	return objectOf(set, map[string]tftypes.Type{
		"talos": tftypes.String, "kubernetes": tftypes.String,
		"talos_versions": tftypes.List{ElementType: tftypes.String}, "kubernetes_versions": tftypes.List{ElementType: tftypes.String},
	})
}

// providerSourceOf is the release_source of the provider block, which may name a table.
func providerSourceOf(set map[string]tftypes.Value) tftypes.Value {
	return objectOf(set, map[string]tftypes.Type{
		"talos": tftypes.String, "kubernetes": tftypes.String, "table": tftypes.String, "table_sha256": tftypes.String,
		"talos_versions": tftypes.List{ElementType: tftypes.String}, "kubernetes_versions": tftypes.List{ElementType: tftypes.String},
	})
}

// objectOf has null for what is not set.
func objectOf(set map[string]tftypes.Value, kinds map[string]tftypes.Type) tftypes.Value {
	values := map[string]tftypes.Value{}
	for name, kind := range kinds {
		values[name] = tftypes.NewValue(kind, nil)
		if value, given := set[name]; given {
			values[name] = value
		}
	}

	return tftypes.NewValue(tftypes.Object{AttributeTypes: kinds}, values)
}

func readAvailable(t *testing.T, clusters *connection.Clusters, set map[string]tftypes.Value) (availableVersionsModel, diag.Diagnostics) {
	t.Helper()

	config := configOf(t, availableVersionsSchema(), set)
	resp := datasource.ReadResponse{State: tfsdk.State{Schema: config.Schema, Raw: tftypes.NewValue(config.Raw.Type(), nil)}}

	(&availableVersionsDataSource{clusters: clusters}).Read(t.Context(), datasource.ReadRequest{Config: config}, &resp)

	var model availableVersionsModel
	if !resp.Diagnostics.HasError() {
		wellDone(t, resp.State.Get(t.Context(), &model))
	}

	return model, told.Noted(t, resp.Diagnostics)
}

// noCluster fails the test when a cluster is looked at.
func noCluster(t *testing.T) *connection.Clusters {
	t.Helper()

	return connection.NewClusters(&connection.Settings{Version: "test", Dial: func(context.Context, *connection.Settings, connection.Credentials, string, connection.KubeconfigCache) (*connection.Connection, error) {
		t.Error("a cluster was looked at")

		return nil, errors.New("no cluster here")
	}}, connection.Credentials{})
}

// listed prints a list as "a b c", and null as it is.
func listed(t *testing.T, list types.List) string {
	t.Helper()

	if list.IsNull() {
		return "null"
	}

	var texts []string

	wellDone(t, list.ElementsAs(t.Context(), &texts, false))

	return strings.Join(texts, " ")
}

// someReleases is a release_source with a few releases of each line.
func someReleases() tftypes.Value {
	return sourceOf(map[string]tftypes.Value{
		"talos_versions":      textsOf("1.11.6", "1.12.0", "1.12.6", "1.12.12", "1.13.0", "1.13.11", "v1.14.0", "1.14.2", "1.15.0-beta.0", "1.99.0"),
		"kubernetes_versions": textsOf("1.30.1", "1.31.4", "1.31.14", "1.32.13", "1.33.13", "1.34.2", "1.35.10", "1.36.0", "1.37.2"),
	})
}

func TestAvailableVersions_OfAGivenPair(t *testing.T) {
	got, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{
		"talos_version": textOf("v1.12.6"), "kubernetes_version": textOf("1.31.4"), "release_source": someReleases(),
	})
	check(t, diagnostics)

	for what, test := range map[string]struct{ got, want string }{
		// Kept as it was written: Terraform insists.
		"from":                     {got.TalosVersion.ValueString(), "v1.12.6"},
		"all of Talos":             {listed(t, got.TalosVersions), "1.11.6 1.12.0 1.12.6 1.12.12 1.13.0 1.13.11 1.14.0 1.14.2 1.99.0"},
		"next of Talos":            {listed(t, got.Next.Talos), "1.12.12 1.13.0 1.13.11"},
		"next of Kubernetes":       {listed(t, got.Next.Kubernetes), "1.31.14 1.32.13"},
		"eventually of Talos":      {listed(t, got.Eventual.Talos), "1.12.12 1.13.0 1.13.11 1.14.0 1.14.2"},
		"eventually of Kubernetes": {listed(t, got.Eventual.Kubernetes), "1.31.14 1.32.13 1.33.13 1.34.2 1.35.10 1.36.0 1.37.2"},
		"latest Talos":             {got.LatestTalos.ValueString(), "1.14.2"},
		"latest Kubernetes":        {got.LatestKubernetes.ValueString(), "1.37.2"},
		"source":                   {got.Source.Talos.ValueString(), "release_source.talos_versions"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %s, want %s", what, test.got, test.want)
		}
	}

	if !got.AsOf.Talos.IsNull() || !got.AsOf.Kubernetes.IsNull() {
		t.Errorf("as of %s and %s", got.AsOf.Talos, got.AsOf.Kubernetes)
	}
}

func TestAvailableVersions_PreReleasesOnRequest(t *testing.T) {
	got, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{
		"talos_version": textOf("1.14.2"), "kubernetes_version": textOf("1.35.10"), "release_source": someReleases(),
		"include_prereleases": tftypes.NewValue(tftypes.Bool, true),
	})
	check(t, diagnostics)

	if next := listed(t, got.Next.Talos); next != "1.15.0-beta.0" {
		t.Errorf("next is %s", next)
	}
}

func TestAvailableVersions_TalosAloneSaysNothingAboutKubernetes(t *testing.T) {
	got, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{"talos_version": textOf("1.12.6"), "release_source": someReleases()})
	check(t, diagnostics)

	if next := listed(t, got.Next.Talos); next != "1.12.12 1.13.0 1.13.11" {
		t.Errorf("next is %s", next)
	}

	if !got.KubernetesVersion.IsNull() || !got.Next.Kubernetes.IsNull() || !got.Eventual.Kubernetes.IsNull() || !got.LatestKubernetes.IsNull() {
		t.Errorf("got %s, next %s, eventually %s, latest %s", got.KubernetesVersion, got.Next.Kubernetes, got.Eventual.Kubernetes, got.LatestKubernetes)
	}

	if listed(t, got.KubernetesVersions) == "null" {
		t.Error("which releases of Kubernetes exist is not a question of where one starts")
	}
}

func TestAvailableVersions_OfACluster(t *testing.T) {
	fake := threeNodes("1.12.0", "1.34.2")
	fake.nodes[1].talos = "1.12.12"

	got, diagnostics := readAvailable(t, fake.clusters(t), map[string]tftypes.Value{"release_source": someReleases()})
	check(t, diagnostics)

	if got.TalosVersion.ValueString() != "1.12.0" || got.KubernetesVersion.ValueString() != "1.34.2" {
		t.Errorf("starts from %s and %s", got.TalosVersion, got.KubernetesVersion)
	}

	// 1.12.6 would take one node back.
	if next := listed(t, got.Next.Talos); next != "1.12.12 1.13.0 1.13.11" {
		t.Errorf("next is %s", next)
	}
}

func TestAvailableVersions_LatestIsWhatRunsWhereNothingIsAhead(t *testing.T) {
	fake := threeNodes("1.14.2", "1.37.2")

	got, diagnostics := readAvailable(t, fake.clusters(t), map[string]tftypes.Value{"release_source": someReleases()})
	check(t, diagnostics)

	if got.LatestTalos.ValueString() != "1.14.2" || got.LatestKubernetes.ValueString() != "1.37.2" {
		t.Errorf("latest are %s and %s", got.LatestTalos, got.LatestKubernetes)
	}

	if next := listed(t, got.Next.Talos); next != "" {
		t.Errorf("next is %s", next)
	}
}

// silentKubernetes lists neither nodes nor pods.
type silentKubernetes struct{ cluster.Kubernetes }

func (silentKubernetes) Nodes(context.Context) ([]cluster.KubeNode, error) {
	return nil, cluster.ErrUnreachable
}

func (silentKubernetes) ComponentPods(context.Context) ([]cluster.ComponentPod, error) {
	return nil, cluster.ErrUnreachable
}

func TestAvailableVersions_OfAClusterThatHidesKubernetes(t *testing.T) {
	fake := threeNodes("1.13.0", "1.34.2")

	hidden := func(ctx context.Context, shared *connection.Settings, access connection.Credentials, wanted string, remembered connection.KubeconfigCache) (*connection.Connection, error) {
		reached, err := fake.dial(ctx, shared, access, wanted, remembered)
		reached.Kubernetes = silentKubernetes{reached.Kubernetes}

		return reached, err
	}

	clusters := connection.NewClusters(&connection.Settings{Version: "test", Dial: hidden}, connection.Credentials{})

	got, diagnostics := readAvailable(t, clusters, map[string]tftypes.Value{"release_source": someReleases()})
	check(t, diagnostics, outcome{diag.SeverityWarning, "Nothing is said about Kubernetes releases"})

	if !got.KubernetesVersion.IsNull() || !got.Next.Kubernetes.IsNull() {
		t.Errorf("got %s, next %s", got.KubernetesVersion, got.Next.Kubernetes)
	}

	if next := listed(t, got.Next.Talos); next != "1.13.11 1.14.0 1.14.2" {
		t.Errorf("next of Talos is %s", next)
	}
}

func TestAvailableVersions_SilentClusterIsAnError(t *testing.T) {
	fake := threeNodes("1.13.0", "1.34.2")
	fake.down = cluster.ErrUnreachable

	_, diagnostics := readAvailable(t, fake.clusters(t), nil)
	check(t, diagnostics, outcome{diag.SeverityError, "No cluster is needed where talos_version and kubernetes_version say what to start from."})
}

func TestAvailableVersions_LeadOutOfAnUnsupportedStart(t *testing.T) {
	got, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{
		"talos_version": textOf("1.13.0"), "kubernetes_version": textOf("1.30.1"), "release_source": someReleases(),
	})
	check(t, diagnostics, outcome{diag.SeverityWarning, "lead back to a supported pair"})

	if next := listed(t, got.Next.Kubernetes); next != "1.31.4 1.31.14" {
		t.Errorf("next of Kubernetes is %s", next)
	}
}

func TestAvailableVersions_EmbeddedListIsTheDefault(t *testing.T) {
	got, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{"talos_version": textOf("1.12.0"), "kubernetes_version": textOf("1.32.0")})
	check(t, diagnostics)

	if got.Source.Talos.ValueString() != "embedded" || got.Source.Kubernetes.ValueString() != "embedded" {
		t.Errorf("sources are %s and %s", got.Source.Talos, got.Source.Kubernetes)
	}

	if day := compat.BuiltIn().AsOf; got.AsOf.Talos.ValueString() != day || got.AsOf.Kubernetes.ValueString() != day {
		t.Errorf("as of %s and %s, want %s", got.AsOf.Talos, got.AsOf.Kubernetes, day)
	}

	talos := compat.BuiltIn().Releases(version.Talos)
	if newest := talos[len(talos)-1].String(); got.LatestTalos.ValueString() != newest {
		t.Errorf("latest is %s, want %s", got.LatestTalos, newest)
	}
}

// defaults is what a provider block says about releases.
func defaults(t *testing.T, url types.String, source tftypes.Value) releases.Defaults {
	t.Helper()

	object, err := releases.ProviderSourceSchema().GetType().ValueFromTerraform(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}

	value, ok := object.(types.Object)
	if !ok {
		t.Fatalf("got %T", object)
	}

	return releases.Defaults{FactoryURL: url, Source: value}
}

func TestAvailableVersions_OverrideTheProviderHalfByHalf(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `["v1.13.7"]`) }))
	t.Cleanup(server.Close)

	clusters := noCluster(t)
	clusters.Releases = defaults(t, types.StringValue(server.URL), providerSourceOf(map[string]tftypes.Value{
		"talos": textOf("factory"), "kubernetes_versions": textsOf("1.34.1"),
	}))

	given := map[string]tftypes.Value{"talos_version": textOf("1.13.0"), "kubernetes_version": textOf("1.34.0")}

	got, diagnostics := readAvailable(t, clusters, given)
	check(t, diagnostics)

	if listed(t, got.TalosVersions) != "1.13.7" || got.Source.Talos.ValueString() != server.URL+"/versions" || !got.AsOf.Talos.IsNull() {
		t.Errorf("got %s from %s as of %s", got.TalosVersions, got.Source.Talos, got.AsOf.Talos)
	}

	if listed(t, got.KubernetesVersions) != "1.34.1" {
		t.Errorf("got %s", got.KubernetesVersions)
	}

	given["release_source"] = sourceOf(map[string]tftypes.Value{"talos_versions": textsOf("1.13.1", "1.13.2")})

	got, diagnostics = readAvailable(t, clusters, given)
	check(t, diagnostics)

	if listed(t, got.TalosVersions) != "1.13.1 1.13.2" || listed(t, got.KubernetesVersions) != "1.34.1" {
		t.Errorf("got %s and %s", got.TalosVersions, got.KubernetesVersions)
	}
}

func TestAvailableVersions_NameASourceThatAnswersRubbish(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `<html>Sign in</html>`) }))
	t.Cleanup(server.Close)

	registry := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/kube-apiserver"
	clusters := noCluster(t)
	clusters.Releases = defaults(t, types.StringValue(server.URL), providerSourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

	_, diagnostics := readAvailable(t, clusters, map[string]tftypes.Value{
		"talos_version": textOf("1.13.0"), "release_source": sourceOf(map[string]tftypes.Value{"kubernetes": textOf(registry)}),
	})
	check(t, diagnostics,
		outcome{diag.SeverityError, server.URL + "/versions"},
		outcome{diag.SeverityError, registry})

	located, ok := diagnostics[1].(diag.DiagnosticWithPath)
	if !ok || !located.Path().Equal(path.Root("release_source").AtName("kubernetes")) {
		t.Errorf("the second points elsewhere: %v", diagnostics[1])
	}
}

func TestAvailableVersions_UnknownSourceMattersOnlyWhereNeeded(t *testing.T) {
	source := providerSourceOf(nil)
	clusters := noCluster(t)
	clusters.Releases = defaults(t, types.StringUnknown(), tftypes.NewValue(source.Type(), tftypes.UnknownValue))

	given := map[string]tftypes.Value{"talos_version": textOf("1.13.0")}

	_, diagnostics := readAvailable(t, clusters, given)
	check(t, diagnostics,
		outcome{diag.SeverityError, "release_source"},
		outcome{diag.SeverityError, "release_source"})

	given["release_source"] = someReleases()

	_, diagnostics = readAvailable(t, clusters, given)
	check(t, diagnostics)

	given["release_source"] = sourceOf(map[string]tftypes.Value{"talos": textOf("factory"), "kubernetes": textOf("embedded")})

	_, diagnostics = readAvailable(t, clusters, given)
	check(t, diagnostics, outcome{diag.SeverityError, "image_factory_url"})
}

func TestAvailableVersions_ValidateTheirInput(t *testing.T) {
	unknown := tftypes.NewValue(tftypes.String, tftypes.UnknownValue)
	withNull := tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("1.13.0"), tftypes.NewValue(tftypes.String, nil)})

	for name, test := range map[string]struct {
		set map[string]tftypes.Value
		at  string
	}{
		"nothing":                 {nil, ""},
		"a pair":                  {map[string]tftypes.Value{"talos_version": textOf("v1.13.0"), "kubernetes_version": textOf("1.34.0")}, ""},
		"Talos alone":             {map[string]tftypes.Value{"talos_version": textOf("1.13.0")}, ""},
		"Kubernetes alone":        {map[string]tftypes.Value{"kubernetes_version": textOf("1.34.0")}, "kubernetes_version"},
		"all of them variables":   {map[string]tftypes.Value{"context": unknown, "talos_version": unknown, "kubernetes_version": unknown}, ""},
		"variables of a module":   {map[string]tftypes.Value{"context": textOf("prod"), "talos_version": unknown, "kubernetes_version": unknown}, ""},
		"Kubernetes a variable":   {map[string]tftypes.Value{"kubernetes_version": unknown}, ""},
		"not known yet":           {map[string]tftypes.Value{"talos_version": unknown, "kubernetes_version": textOf("1.34.0")}, ""},
		"context":                 {map[string]tftypes.Value{"context": textOf("prod")}, ""},
		"empty context":           {map[string]tftypes.Value{"context": textOf("")}, "context"},
		"context and version":     {map[string]tftypes.Value{"context": textOf("prod"), "talos_version": textOf("1.13.0")}, "context"},
		"minor version":           {map[string]tftypes.Value{"talos_version": textOf("1.13")}, "talos_version"},
		"word":                    {map[string]tftypes.Value{"talos_version": textOf("1.13.0"), "kubernetes_version": textOf("latest")}, "kubernetes_version"},
		"sources":                 {map[string]tftypes.Value{"release_source": sourceOf(map[string]tftypes.Value{"talos": textOf("factory"), "kubernetes": textOf("oci://ghcr.io/siderolabs/kubelet")})}, ""},
		"factory for Kubernetes":  {map[string]tftypes.Value{"release_source": sourceOf(map[string]tftypes.Value{"kubernetes": textOf("factory")})}, "release_source"},
		"no source":               {map[string]tftypes.Value{"release_source": sourceOf(map[string]tftypes.Value{"talos": textOf("https://factory.talos.dev")})}, "release_source"},
		"source and list":         {map[string]tftypes.Value{"release_source": sourceOf(map[string]tftypes.Value{"talos": textOf("factory"), "talos_versions": textsOf("1.13.0")})}, "release_source.talos"},
		"empty list":              {map[string]tftypes.Value{"release_source": sourceOf(map[string]tftypes.Value{"talos_versions": textsOf()})}, "release_source.talos_versions"},
		"null in the list":        {map[string]tftypes.Value{"release_source": sourceOf(map[string]tftypes.Value{"talos_versions": withNull})}, "release_source"},
		"bad version in the list": {map[string]tftypes.Value{"release_source": sourceOf(map[string]tftypes.Value{"kubernetes_versions": textsOf("1.34.0", "1.35")})}, "release_source"},
	} {
		t.Run(name, func(t *testing.T) {
			got := validateData(t, "talosupgrade_available_versions", configOf(t, availableVersionsSchema(), test.set))

			if want := slices.DeleteFunc([]string{test.at}, func(at string) bool { return at == "" }); !slices.Equal(got, want) {
				t.Errorf("errors at %q, want %q", got, want)
			}
		})
	}
}

func TestAvailableVersions_ValidateTheProvidersReleases(t *testing.T) {
	for name, test := range map[string]struct {
		set  map[string]tftypes.Value
		want int
	}{
		"all of it": {map[string]tftypes.Value{
			"image_factory_url": textOf("https://factory.example.com/talos"),
			"release_source":    providerSourceOf(map[string]tftypes.Value{"talos": textOf("factory"), "kubernetes_versions": textsOf("1.34.0")}),
		}, 0},
		"null in a list": {map[string]tftypes.Value{"release_source": providerSourceOf(map[string]tftypes.Value{"kubernetes_versions": tftypes.NewValue(
			tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("1.34.0"), tftypes.NewValue(tftypes.String, nil)})})}, 1},
		"a table": {map[string]tftypes.Value{"release_source": providerSourceOf(map[string]tftypes.Value{"table": textOf("releases.txt")})}, 0},
		"a table at an address": {map[string]tftypes.Value{"release_source": providerSourceOf(map[string]tftypes.Value{
			"table": textOf("https://example.com/releases.txt"), "table_sha256": textOf(strings.Repeat("a", 64)),
		})}, 0},
		"a table whose SHA-256 is not known yet": {map[string]tftypes.Value{"release_source": providerSourceOf(map[string]tftypes.Value{
			"table": textOf("https://example.com/releases.txt"), "table_sha256": tftypes.NewValue(tftypes.String, tftypes.UnknownValue),
		})}, 0},
		"a table at an address without its SHA-256": {map[string]tftypes.Value{"release_source": providerSourceOf(map[string]tftypes.Value{
			"table": textOf("https://example.com/releases.txt"),
		})}, 1},
		"a SHA-256 of nothing": {map[string]tftypes.Value{"release_source": providerSourceOf(map[string]tftypes.Value{"table_sha256": textOf(strings.Repeat("a", 64))})}, 1},
		"bad URL":              {map[string]tftypes.Value{"image_factory_url": textOf("factory.talos.dev")}, 1},
		"bad source":           {map[string]tftypes.Value{"release_source": providerSourceOf(map[string]tftypes.Value{"talos": textOf("ghcr.io/siderolabs/installer")})}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if diagnostics := validateProvider(t.Context(), t, test.set); len(diagnostics) != test.want {
				t.Errorf("got %d diagnostics, want %d", len(diagnostics), test.want)
			}
		})
	}
}

// TestAvailableVersions_NameAMissingRelease: it may have been unknown when it was validated.
func TestAvailableVersions_NameAMissingRelease(t *testing.T) {
	_, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{
		"talos_version": textOf("1.13.0"),
		"release_source": sourceOf(map[string]tftypes.Value{"talos_versions": tftypes.NewValue(
			tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("1.13.4"), tftypes.NewValue(tftypes.String, nil)})}),
	})
	check(t, diagnostics, outcome{diag.SeverityError, "release_source.talos_versions[1] is null"})
}

// TestAvailableVersions_WithdrawnReleaseOfAListIsNotRecommended: the resource would refuse it.
func TestAvailableVersions_WithdrawnReleaseOfAListIsNotRecommended(t *testing.T) {
	for latest, list := range map[string][]string{"1.12.6": {"1.13.1"}, "1.13.4": {"1.13.1", "1.13.4"}} {
		model, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{
			"talos_version": textOf("1.12.6"), "release_source": sourceOf(map[string]tftypes.Value{"talos_versions": textsOf(list...)}),
		})
		check(t, diagnostics)

		if got := model.LatestTalos.ValueString(); got != latest || len(model.TalosVersions.Elements()) != len(list) {
			t.Errorf("of %q, %s is recommended and %s listed, want %s and all", list, got, model.TalosVersions, latest)
		}
	}
}

// TestAvailableVersions_StartBeyondTheMatrixIsSaid: otherwise it would look up to date.
func TestAvailableVersions_StartBeyondTheMatrixIsSaid(t *testing.T) {
	_, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{"talos_version": textOf("1.99.0")})
	check(t, diagnostics, outcome{diag.SeverityWarning, "Talos 1.99.0 is newer than"})
}
