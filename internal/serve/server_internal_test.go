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

	called, err := s.CallFunction(t.Context(), &tfprotov6.CallFunctionRequest{})
	if !errors.Is(err, context.Canceled) || called.Error.Text != `held by \x1b[2Jnobody` {
		t.Errorf("the function says %+v, %v", called.Error, err)
	}
}
