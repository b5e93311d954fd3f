// SPDX-License-Identifier: MPL-2.0

package serve

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// server is the provider as the command line calls it. What may take its time is
// part of the lifetime of the process, and every diagnostic leaves it here.
type server struct {
	tfprotov6.ProviderServer
	// actions and lists are the parts of it that its interface does not have yet, and the
	// framework's server has.
	actions tfprotov6.ActionServer
	lists   tfprotov6.ListResourceServer

	life *lifetime
	// logs tells that somebody has asked for logs.
	logs bool

	mu sync.Mutex
	// invoked are the actions that are going on.
	invoked map[*invocation]bool
}

// invocation is an action that is going on.
type invocation struct {
	cancel context.CancelFunc
	// over is closed when it has ended.
	over chan struct{}
}

// newServer is the provider as part of the lifetime.
func newServer(made tfprotov6.ProviderServer, life *lifetime) *server {
	s := &server{ProviderServer: made, life: life, logs: slices.ContainsFunc(os.Environ(), asksForLogs), invoked: map[*invocation]bool{}}
	s.actions, _ = made.(tfprotov6.ActionServer)
	s.lists, _ = made.(tfprotov6.ListResourceServer)

	return s
}

// asksForLogs tells whether a variable of the environment makes the command line, the provider or the SDK write logs:
// TF_LOG and all names that begin so.
func asksForLogs(variable string) bool { return strings.HasPrefix(variable, "TF_LOG") }

// unlogged is a context without values, and so without loggers. The framework hands each value of a state to its
// logger, whether anybody reads that or not, in a context that grows with each of them: of a thousand nodes that
// is half of the time of a plan (plugin-framework 1.19.0, NullifyWriteOnlyAttributes).
type unlogged struct{ context.Context }

// Value implements [context.Context].
func (unlogged) Value(any) any { return nil }

// show makes what is said fit to be shown.
func show(said []*tfprotov6.Diagnostic) {
	for _, diagnostic := range said {
		diagnostic.Summary, diagnostic.Detail = readable.Printable(diagnostic.Summary), readable.Printable(diagnostic.Detail)
	}
}

var (
	_ tfprotov6.ActionServer       = (*server)(nil)
	_ tfprotov6.ListResourceServer = (*server)(nil)
)

// carry carries out a call as a part of the lifetime, and makes what it has to say
// fit to be shown.
func carry[Q, R any](
	ctx context.Context, s *server, request *Q, call func(context.Context, *Q) (*R, error), said func(*R) []*tfprotov6.Diagnostic,
) (*R, error) {
	if !s.logs {
		ctx = unlogged{ctx}
	}

	bound, done := s.life.begin(ctx)
	defer done()

	answer, err := call(bound, request)
	if answer != nil {
		show(said(answer))
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

// ValidateListResourceConfig implements [tfprotov6.ListResourceServer].
func (s *server) ValidateListResourceConfig(
	ctx context.Context, req *tfprotov6.ValidateListResourceConfigRequest,
) (*tfprotov6.ValidateListResourceConfigResponse, error) {
	return carry(ctx, s, req, s.lists.ValidateListResourceConfig,
		func(r *tfprotov6.ValidateListResourceConfigResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// ListResource implements [tfprotov6.ListResourceServer]. The call lasts until its last
// result has left.
func (s *server) ListResource(ctx context.Context, req *tfprotov6.ListResourceRequest) (*tfprotov6.ListResourceServerStream, error) {
	bound, done := s.life.begin(ctx)

	stream, err := s.lists.ListResource(bound, req)
	if err != nil {
		done()

		return nil, err
	}

	results := stream.Results

	return &tfprotov6.ListResourceServerStream{Results: func(push func(tfprotov6.ListResourceResult) bool) {
		defer done()

		for result := range results {
			result.DisplayName = readable.Printable(result.DisplayName)
			show(result.Diagnostics)

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

// ValidateActionConfig implements [tfprotov6.ActionServer].
func (s *server) ValidateActionConfig(ctx context.Context, req *tfprotov6.ValidateActionConfigRequest) (*tfprotov6.ValidateActionConfigResponse, error) {
	return carry(ctx, s, req, s.actions.ValidateActionConfig,
		func(r *tfprotov6.ValidateActionConfigResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// PlanAction implements [tfprotov6.ActionServer].
func (s *server) PlanAction(ctx context.Context, req *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	return carry(ctx, s, req, s.actions.PlanAction,
		func(r *tfprotov6.PlanActionResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// InvokeAction implements [tfprotov6.ActionServer]. The stream ends with the action, also
// where nobody listens any more: the framework would leave it behind, waiting for somebody
// to take its next line.
func (s *server) InvokeAction(ctx context.Context, req *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	bound, done := s.life.begin(ctx)
	bound, cancel := context.WithCancel(bound)

	stream, err := s.actions.InvokeAction(bound, req)
	if err != nil {
		cancel()
		done()

		return nil, err
	}

	going := &invocation{cancel: cancel, over: make(chan struct{})}
	s.note(going)

	return &tfprotov6.InvokeActionServerStream{Events: func(push func(tfprotov6.InvokeActionEvent) bool) {
		defer done()
		defer s.end(going)

		listened := true

		for event := range stream.Events {
			completed, isLast := event.Type.(tfprotov6.CompletedInvokeActionEventType)
			if isLast {
				show(completed.Diagnostics)
			}

			// The command line leaves an action at once that says anything but its last word
			// after it was cancelled.
			if listened && (isLast || bound.Err() == nil) {
				listened = push(event)
			}
		}
	}}, nil
}

func (s *server) note(going *invocation) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.invoked[going] = true
}

func (s *server) end(going *invocation) {
	s.mu.Lock()
	defer s.mu.Unlock()

	going.cancel()
	delete(s.invoked, going)
	close(going.over)
}

// stopMost bounds how long an interrupted command line waits for the last word of actions:
// longer than an upgrade takes to stop.
const stopMost = 20 * time.Second

// StopProvider implements [tfprotov6.ProviderServer]. Everything that is going on is
// cancelled first. It returns with the last action, because what an action says after that
// is not passed on.
func (s *server) StopProvider(ctx context.Context, req *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	s.mu.Lock()
	going := slices.Collect(maps.Keys(s.invoked))
	s.mu.Unlock()

	for _, one := range going {
		one.cancel()
	}

	answer, err := s.ProviderServer.StopProvider(ctx, req)
	patience := time.After(stopMost)

	for _, one := range going {
		select {
		case <-one.over:
		case <-ctx.Done():
		case <-patience:
			return answer, err
		}
	}

	return answer, err
}
