// SPDX-License-Identifier: MPL-2.0

package serve

import (
	"context"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// server is the provider as the command line calls it. What may take its time is
// part of the lifetime of the process, and every diagnostic leaves it here.
type server struct {
	tfprotov6.ProviderServer

	life *lifetime
}

var _ tfprotov6.ListResourceServer = (*server)(nil)

// carry carries out a call as a part of the lifetime, and makes what it has to say
// fit to be shown.
func carry[Q, R any](
	ctx context.Context, s *server, request *Q, call func(context.Context, *Q) (*R, error), said func(*R) []*tfprotov6.Diagnostic,
) (*R, error) {
	bound, done := s.life.begin(ctx)
	defer done()

	answer, err := call(bound, request)
	if answer != nil {
		for _, diagnostic := range said(answer) {
			diagnostic.Summary, diagnostic.Detail = readable.Printable(diagnostic.Summary), readable.Printable(diagnostic.Detail)
		}
	}

	return answer, err
}

// ValidateProviderConfig implements [tfprotov6.ProviderServer].
func (s *server) ValidateProviderConfig(ctx context.Context, req *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ValidateProviderConfig,
		func(r *tfprotov6.ValidateProviderConfigResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ConfigureProvider implements [tfprotov6.ProviderServer].
func (s *server) ConfigureProvider(ctx context.Context, req *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ConfigureProvider,
		func(r *tfprotov6.ConfigureProviderResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ValidateResourceConfig implements [tfprotov6.ProviderServer].
func (s *server) ValidateResourceConfig(ctx context.Context, req *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ValidateResourceConfig,
		func(r *tfprotov6.ValidateResourceConfigResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// UpgradeResourceState implements [tfprotov6.ProviderServer].
func (s *server) UpgradeResourceState(ctx context.Context, req *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.UpgradeResourceState,
		func(r *tfprotov6.UpgradeResourceStateResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ReadResource implements [tfprotov6.ProviderServer].
func (s *server) ReadResource(ctx context.Context, req *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ReadResource,
		func(r *tfprotov6.ReadResourceResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// PlanResourceChange implements [tfprotov6.ProviderServer].
func (s *server) PlanResourceChange(ctx context.Context, req *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.PlanResourceChange,
		func(r *tfprotov6.PlanResourceChangeResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ApplyResourceChange implements [tfprotov6.ProviderServer].
func (s *server) ApplyResourceChange(ctx context.Context, req *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ApplyResourceChange,
		func(r *tfprotov6.ApplyResourceChangeResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ImportResourceState implements [tfprotov6.ProviderServer].
func (s *server) ImportResourceState(ctx context.Context, req *tfprotov6.ImportResourceStateRequest) (*tfprotov6.ImportResourceStateResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ImportResourceState,
		func(r *tfprotov6.ImportResourceStateResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// MoveResourceState implements [tfprotov6.ProviderServer].
func (s *server) MoveResourceState(ctx context.Context, req *tfprotov6.MoveResourceStateRequest) (*tfprotov6.MoveResourceStateResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.MoveResourceState,
		func(r *tfprotov6.MoveResourceStateResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ValidateDataResourceConfig implements [tfprotov6.ProviderServer].
func (s *server) ValidateDataResourceConfig(
	ctx context.Context, req *tfprotov6.ValidateDataResourceConfigRequest,
) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ValidateDataResourceConfig,
		func(r *tfprotov6.ValidateDataResourceConfigResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ReadDataSource implements [tfprotov6.ProviderServer].
func (s *server) ReadDataSource(ctx context.Context, req *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	return carry(ctx, s, req, s.ProviderServer.ReadDataSource,
		func(r *tfprotov6.ReadDataSourceResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// lists is the part of the provider that the protocol's own interface does not have yet,
// and the framework's server has.
func (s *server) lists() tfprotov6.ListResourceServer {
	lists, _ := s.ProviderServer.(tfprotov6.ListResourceServer)

	return lists
}

// ValidateListResourceConfig implements [tfprotov6.ListResourceServer].
func (s *server) ValidateListResourceConfig(
	ctx context.Context, req *tfprotov6.ValidateListResourceConfigRequest,
) (*tfprotov6.ValidateListResourceConfigResponse, error) {
	return carry(ctx, s, req, s.lists().ValidateListResourceConfig,
		func(r *tfprotov6.ValidateListResourceConfigResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ListResource implements [tfprotov6.ListResourceServer]. The call lasts until its last
// result has left.
func (s *server) ListResource(ctx context.Context, req *tfprotov6.ListResourceRequest) (*tfprotov6.ListResourceServerStream, error) {
	bound, done := s.life.begin(ctx)

	stream, err := s.lists().ListResource(bound, req)
	if err != nil {
		done()

		return nil, err
	}

	results := stream.Results

	return &tfprotov6.ListResourceServerStream{Results: func(push func(tfprotov6.ListResourceResult) bool) {
		defer done()

		for result := range results {
			result.DisplayName = readable.Printable(result.DisplayName)

			for _, diagnostic := range result.Diagnostics {
				diagnostic.Summary, diagnostic.Detail = readable.Printable(diagnostic.Summary), readable.Printable(diagnostic.Detail)
			}

			if !push(result) {
				return
			}
		}
	}}, nil
}

// CallFunction implements [tfprotov6.ProviderServer].
func (s *server) CallFunction(ctx context.Context, req *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	bound, done := s.life.begin(ctx)
	defer done()

	answer, err := s.ProviderServer.CallFunction(bound, req)
	if answer != nil && answer.Error != nil {
		answer.Error.Text = readable.Printable(answer.Error.Text)
	}

	return answer, err
}
