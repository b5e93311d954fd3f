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

// server is the provider as the command line calls it. Calls that may take time are bound to the lifetime of the
// process, and all their diagnostics are made printable here. A configuration that the command line validates only while
// its variables are unknown, or not at all, is validated here before it is used.
type server struct {
	tfprotov6.ProviderServer
	// actions and lists are the parts of the framework's server that the interface tfprotov6.ProviderServer does not
	// include yet.
	actions tfprotov6.ActionServer
	lists   tfprotov6.ListResourceServer

	life *lifetime
	// logs is true if logs are requested.
	logs bool

	mu sync.Mutex
	// invoked are the running actions.
	invoked map[*invocation]bool
}

// invocation is a running action.
type invocation struct {
	cancel context.CancelFunc
	// over is closed once the action has ended.
	over chan struct{}
}

// newServer returns the server of the provider, bound to the lifetime.
func newServer(made tfprotov6.ProviderServer, life *lifetime) *server {
	s := &server{ProviderServer: made, life: life, logs: slices.ContainsFunc(os.Environ(), asksForLogs), invoked: map[*invocation]bool{}}
	s.actions, _ = made.(tfprotov6.ActionServer)
	s.lists, _ = made.(tfprotov6.ListResourceServer)

	return s
}

// asksForLogs reports whether an environment variable makes the command line, the provider or the SDK write logs:
// TF_LOG and all names that begin with it.
func asksForLogs(variable string) bool { return strings.HasPrefix(variable, "TF_LOG") }

// unlogged is a context without values, and so without loggers. The framework passes each value of a state to its
// logger, whether or not logs are written, in a context that grows with each value. For a thousand nodes, that is
// half of the time of a plan (plugin-framework 1.19.0, NullifyWriteOnlyAttributes).
type unlogged struct{ context.Context }

// Value implements [context.Context].
func (unlogged) Value(any) any { return nil }

// show makes diagnostics printable.
func show(said []*tfprotov6.Diagnostic) {
	for _, diagnostic := range said {
		diagnostic.Summary, diagnostic.Detail = readable.Printable(diagnostic.Summary), readable.Printable(diagnostic.Detail)
	}
}

var (
	_ tfprotov6.ActionServer       = (*server)(nil)
	_ tfprotov6.ListResourceServer = (*server)(nil)
)

// carry runs a call within the lifetime, and makes its diagnostics printable.
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
	return carry(ctx, s, req, s.configureValid,
		func(r *tfprotov6.ConfigureProviderResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// configureValid configures the provider if its configuration is valid. Terraform does not validate a provider block in a
// test file (1.14.8, internal/moduletest/graph/node_provider.go, 2026-12-01).
func (s *server) configureValid(ctx context.Context, req *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	validated, err := s.ProviderServer.ValidateProviderConfig(ctx, &tfprotov6.ValidateProviderConfigRequest{Config: req.Config})
	if err != nil {
		return nil, err
	}

	if slices.ContainsFunc(validated.Diagnostics, isError) {
		return &tfprotov6.ConfigureProviderResponse{Diagnostics: validated.Diagnostics}, nil
	}

	return s.ProviderServer.ConfigureProvider(ctx, req)
}

func isError(said *tfprotov6.Diagnostic) bool {
	return said.Severity == tfprotov6.DiagnosticSeverityError
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

// ListResource implements [tfprotov6.ListResourceServer]. The call lasts until its last result has been sent.
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
	return carry(ctx, s, req, s.planValidAction,
		func(r *tfprotov6.PlanActionResponse) []*tfprotov6.Diagnostic { return r.Diagnostics })
}

// planValidAction plans an action if its configuration is valid.
func (s *server) planValidAction(ctx context.Context, req *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	found, err := s.actionErrors(ctx, req.ActionType, req.Config)
	if err != nil {
		return nil, err
	}

	if found != nil {
		return &tfprotov6.PlanActionResponse{Diagnostics: found}, nil
	}

	return s.actions.PlanAction(ctx, req)
}

// actionErrors returns the diagnostics of a configuration of an action if there is an error among them. Terraform validates
// it only while all input variables are unknown (1.14.8, internal/terraform/node_action_validate.go, 2026-12-01).
func (s *server) actionErrors(ctx context.Context, name string, config *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
	validated, err := s.actions.ValidateActionConfig(ctx, &tfprotov6.ValidateActionConfigRequest{ActionType: name, Config: config})
	if err != nil || !slices.ContainsFunc(validated.Diagnostics, isError) {
		return nil, err
	}

	return validated.Diagnostics, nil
}

// InvokeAction implements [tfprotov6.ActionServer]. An action whose configuration is invalid ends at once. The stream is
// read until the action has ended, even if nobody listens any more: the framework would otherwise leave the action blocked
// on its next line.
func (s *server) InvokeAction(ctx context.Context, req *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	bound, done := s.life.begin(ctx)
	bound, cancel := context.WithCancel(bound)

	stream, err := s.invokeValidAction(bound, req)
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

			// Once it has cancelled an action, the command line abandons it on any event other than the last.
			if listened && (isLast || bound.Err() == nil) {
				listened = push(event)
			}
		}
	}}, nil
}

// invokeValidAction invokes an action if its configuration is valid.
func (s *server) invokeValidAction(ctx context.Context, req *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	found, err := s.actionErrors(ctx, req.ActionType, req.Config)
	if err != nil {
		return nil, err
	}

	if found != nil {
		return &tfprotov6.InvokeActionServerStream{Events: func(push func(tfprotov6.InvokeActionEvent) bool) {
			push(tfprotov6.InvokeActionEvent{Type: tfprotov6.CompletedInvokeActionEventType{Diagnostics: found}})
		}}, nil
	}

	return s.actions.InvokeAction(ctx, req)
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

// stopMost bounds how long an interrupted command line waits for the last events of actions. It is longer than an
// upgrade takes to stop.
const stopMost = 20 * time.Second

// StopProvider implements [tfprotov6.ProviderServer]. It cancels all running calls, actions first, and returns once
// the last action has ended, because events that an action sends later are not passed on.
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
