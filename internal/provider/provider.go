// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
)

var (
	_ provider.Provider                     = (*talosUpgrade)(nil)
	_ provider.ProviderWithConfigValidators = (*talosUpgrade)(nil)
)

// typeName is the prefix of every resource and data source.
const typeName = "talosupgrade"

// Option changes how the provider works, for tests.
type Option func(*settings)

// settings are what all provider instances of one process share.
type settings struct {
	version string
	clock   engine.Clock
	dial    dialFunc
	// registry knows whether images exist; nil asks nobody.
	registry cluster.Registry
}

// userAgent names the provider to the APIs it calls.
func (s *settings) userAgent() string { return "terraform-provider-talosupgrade/" + s.version }

// WithClock makes the engine take the time from the clock, so that a simulated
// cluster may run faster than the world.
func WithClock(clock engine.Clock) Option {
	return func(s *settings) { s.clock = clock }
}

// New is the factory of provider instances of the given version, as the plugin
// servers want it.
func New(version string, options ...Option) func() provider.Provider {
	shared := &settings{version: version, clock: engine.RealClock(), dial: dial}
	shared.registry = release.NewRegistry(release.Options{UserAgent: shared.userAgent()})

	for _, option := range options {
		option(shared)
	}

	return func() provider.Provider { return &talosUpgrade{settings: shared} }
}

type talosUpgrade struct {
	settings *settings
}

// Metadata implements [provider.Provider].
func (p *talosUpgrade) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = typeName
	resp.Version = p.settings.version
}

// Schema implements [provider.Provider].
func (p *talosUpgrade) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = providerSchema()
}

// ConfigValidators implements [provider.ProviderWithConfigValidators].
func (p *talosUpgrade) ConfigValidators(context.Context) []provider.ConfigValidator {
	return []provider.ConfigValidator{credentialsValidator{}}
}

// Configure implements [provider.Provider]. What is missing or not known yet is
// no error here: a configuration may use the provider for things that need no
// cluster, so the first use that does need one reports it.
func (p *talosUpgrade) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var model providerModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	access, diagnostics := model.credentials(ctx)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	clusters := newClusters(p.settings, access)
	clusters.releases = releaseDefaults{factoryURL: model.ImageFactoryURL, source: model.ReleaseSource}
	resp.ResourceData = clusters
	resp.DataSourceData = clusters
}

// Resources implements [provider.Provider].
func (p *talosUpgrade) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newClusterResource}
}

// DataSources implements [provider.Provider].
func (p *talosUpgrade) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{newCurrentVersionsDataSource, newAvailableVersionsDataSource, newCompatibilityDataSource, newPreflightDataSource}
}
