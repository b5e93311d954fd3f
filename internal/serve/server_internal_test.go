// SPDX-License-Identifier: MPL-2.0

package serve

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// talker says what it was told to whatever it is asked, once it has been cancelled.
type talker struct {
	tfprotov6.ProviderServer

	diagnostics []*tfprotov6.Diagnostic
}

func (h talker) ApplyResourceChange(ctx context.Context, _ *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	<-ctx.Done()

	return &tfprotov6.ApplyResourceChangeResponse{Diagnostics: h.diagnostics}, ctx.Err()
}

func (h talker) CallFunction(ctx context.Context, _ *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	<-ctx.Done()

	return &tfprotov6.CallFunctionResponse{Error: &tfprotov6.FunctionError{Text: h.diagnostics[0].Summary}}, ctx.Err()
}

func (h talker) ValidateListResourceConfig(
	context.Context, *tfprotov6.ValidateListResourceConfigRequest,
) (*tfprotov6.ValidateListResourceConfigResponse, error) {
	return &tfprotov6.ValidateListResourceConfigResponse{Diagnostics: h.diagnostics}, nil
}

func (h talker) ListResource(ctx context.Context, _ *tfprotov6.ListResourceRequest) (*tfprotov6.ListResourceServerStream, error) {
	return &tfprotov6.ListResourceServerStream{Results: func(push func(tfprotov6.ListResourceResult) bool) {
		<-ctx.Done()
		push(tfprotov6.ListResourceResult{DisplayName: "prod\r", Diagnostics: h.diagnostics})
	}}, nil
}

// TestListIsGoingOnUntilItsLastResultHasLeft: the process must not end before that.
func TestListIsGoingOnUntilItsLastResultHasLeft(t *testing.T) {
	life := newLifetime(func() {})
	s := &server{life: life, ProviderServer: talker{}}

	stream, err := s.ListResource(t.Context(), &tfprotov6.ListResourceRequest{})
	if err != nil {
		t.Fatal(err)
	}

	if life.running != 1 {
		t.Errorf("%d calls are going on", life.running)
	}

	life.stop()

	for range stream.Results {
		if life.running != 1 {
			t.Errorf("%d calls are going on while a result leaves", life.running)
		}
	}

	if life.running != 0 {
		t.Errorf("%d calls are going on after the last result", life.running)
	}
}

func TestCallsAreCancelledAndTheirWordsPrintable(t *testing.T) {
	life := newLifetime(func() {})
	s := &server{life: life, ProviderServer: talker{diagnostics: []*tfprotov6.Diagnostic{
		{Summary: "held by \x1b[2Jnobody", Detail: "one\n\ttwo\r"}, {Summary: "well", Detail: "known"},
	}}}

	life.stop()

	answer, err := s.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}

	want := []*tfprotov6.Diagnostic{{Summary: `held by \x1b[2Jnobody`, Detail: "one\n\ttwo\\r"}, {Summary: "well", Detail: "known"}}
	if !reflect.DeepEqual(answer.Diagnostics, want) {
		t.Errorf("it says %+v", answer.Diagnostics)
	}

	stream, err := s.ListResource(t.Context(), &tfprotov6.ListResourceRequest{})
	if err != nil {
		t.Fatal(err)
	}

	for result := range stream.Results {
		if result.DisplayName != `prod\r` || !reflect.DeepEqual(result.Diagnostics, want) {
			t.Errorf("it lists %q, with %+v", result.DisplayName, result.Diagnostics)
		}
	}

	called, err := s.CallFunction(t.Context(), &tfprotov6.CallFunctionRequest{})
	if !errors.Is(err, context.Canceled) || called.Error.Text != `held by \x1b[2Jnobody` {
		t.Errorf("the function says %+v, %v", called.Error, err)
	}
}
