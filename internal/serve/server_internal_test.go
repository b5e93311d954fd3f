// SPDX-License-Identifier: MPL-2.0

package serve

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// talker says what it was told to whatever it is asked, once it has been cancelled; a validation at once.
type talker struct {
	tfprotov6.ProviderServer

	diagnostics []*tfprotov6.Diagnostic
}

func (h talker) ApplyResourceChange(ctx context.Context, _ *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	<-ctx.Done()

	return &tfprotov6.ApplyResourceChangeResponse{Diagnostics: h.diagnostics}, ctx.Err()
}

// passed is the key of a value of a context.
type passed struct{}

func (h talker) ReadResource(ctx context.Context, _ *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	value, _ := ctx.Value(passed{}).(string)

	return &tfprotov6.ReadResourceResponse{Private: []byte(value)}, nil
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

// TestServer_ListGoesOnUntilItsLastResultHasLeft: the process must not end before that.
func TestServer_ListGoesOnUntilItsLastResultHasLeft(t *testing.T) {
	life := newLifetime(func() {})
	s := newServer(talker{}, life)

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

// InvokeAction says a line, waits until it is cancelled, says another one and ends.
func (h talker) InvokeAction(ctx context.Context, _ *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	return &tfprotov6.InvokeActionServerStream{Events: func(push func(tfprotov6.InvokeActionEvent) bool) {
		line := tfprotov6.InvokeActionEvent{Type: tfprotov6.ProgressInvokeActionEventType{Message: "a line"}}

		if !push(line) {
			panic("the action would be left behind")
		}

		<-ctx.Done()
		push(line)
		push(tfprotov6.InvokeActionEvent{Type: tfprotov6.CompletedInvokeActionEventType{Diagnostics: h.diagnostics}})
	}}, nil
}

func (h talker) ValidateActionConfig(context.Context, *tfprotov6.ValidateActionConfigRequest) (*tfprotov6.ValidateActionConfigResponse, error) {
	return &tfprotov6.ValidateActionConfigResponse{Diagnostics: h.diagnostics}, nil
}

func (h talker) PlanAction(context.Context, *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	return &tfprotov6.PlanActionResponse{Diagnostics: h.diagnostics}, nil
}

func (h talker) StopProvider(context.Context, *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	return &tfprotov6.StopProviderResponse{}, nil
}

// TestServer_InterruptedActionHasTheLastWord: the command line leaves an action that says
// anything else once it was interrupted, and the framework passes nothing on once the
// provider has been stopped.
func TestServer_InterruptedActionHasTheLastWord(t *testing.T) {
	for name, interrupt := range map[string]func(*server){
		"by the command line": func(s *server) { _, _ = s.StopProvider(context.Background(), &tfprotov6.StopProviderRequest{}) },
		"by a signal":         func(s *server) { s.life.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(talker{diagnostics: []*tfprotov6.Diagnostic{{Summary: "held by \x1b[2Jnobody"}}}, newLifetime(func() {}))

				stream, err := s.InvokeAction(t.Context(), &tfprotov6.InvokeActionRequest{})
				if err != nil {
					t.Fatal(err)
				}

				stopped := false

				var said []string

				for event := range stream.Events {
					switch event := event.Type.(type) {
					case tfprotov6.ProgressInvokeActionEventType:
						said = append(said, event.Message)

						go func() {
							time.Sleep(time.Second)
							interrupt(s)

							stopped = true
						}()
					case tfprotov6.CompletedInvokeActionEventType:
						synctest.Wait()

						if name == "by the command line" && stopped {
							t.Error("the provider was stopped before the action had ended")
						}

						said = append(said, event.Diagnostics[0].Summary)
					}
				}

				synctest.Wait()

				if want := []string{"a line", `held by \x1b[2Jnobody`}; !slices.Equal(said, want) || !stopped {
					t.Errorf("it said %q, want %q; stopped: %t", said, want, stopped)
				}
			})
		})
	}
}

// TestServer_ActionThatNobodyListensToEnds: its command line has gone.
func TestServer_ActionThatNobodyListensToEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(talker{}, newLifetime(func() {}))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)

		stream, err := s.InvokeAction(ctx, &tfprotov6.InvokeActionRequest{})
		if err != nil {
			t.Fatal(err)
		}

		begun := time.Now()
		stream.Events(func(tfprotov6.InvokeActionEvent) bool { return false })

		if took := time.Since(begun); took != time.Minute {
			t.Errorf("it ended after %s, and not with the action", took)
		}
	})
}

// TestServer_HangingActionDoesNotKeepTheProvider: it is told to stop all the same.
func TestServer_HangingActionDoesNotKeepTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(talker{}, newLifetime(func() {}))
		s.note(&invocation{cancel: func() {}, over: make(chan struct{})})

		begun := time.Now()
		_, err := s.StopProvider(t.Context(), &tfprotov6.StopProviderRequest{})

		if took := time.Since(begun); err != nil || took != stopMost {
			t.Errorf("it stopped after %s, %v", took, err)
		}
	})
}

func TestServer_CallsAreCancelledAndTheirWordsPrintable(t *testing.T) {
	life := newLifetime(func() {})
	s := newServer(talker{diagnostics: []*tfprotov6.Diagnostic{
		{Summary: "held by \x1b[2Jnobody", Detail: "one\n\ttwo\r"}, {Summary: "well", Detail: "known"},
	}}, life)

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

	validated, _ := s.ValidateActionConfig(t.Context(), &tfprotov6.ValidateActionConfigRequest{})
	planned, _ := s.PlanAction(t.Context(), &tfprotov6.PlanActionRequest{})

	if !reflect.DeepEqual(validated.Diagnostics, want) || !reflect.DeepEqual(planned.Diagnostics, want) {
		t.Errorf("an action says %+v and %+v", validated.Diagnostics, planned.Diagnostics)
	}
}

// picky finds an error in each configuration that it validates. Nothing else may be asked of it.
type picky struct{ talker }

func (p picky) ValidateProviderConfig(context.Context, *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{Diagnostics: p.diagnostics}, nil
}

func (picky) ConfigureProvider(context.Context, *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	panic("it was configured")
}

func (picky) PlanAction(context.Context, *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	panic("the action was planned")
}

func (picky) InvokeAction(context.Context, *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	panic("the action was invoked")
}

// TestServer_InvalidConfigurationIsNotUsed, though the command line has not validated it with these values.
func TestServer_InvalidConfigurationIsNotUsed(t *testing.T) {
	want := []*tfprotov6.Diagnostic{
		{Severity: tfprotov6.DiagnosticSeverityWarning, Summary: "an old name"}, {Severity: tfprotov6.DiagnosticSeverityError, Summary: "context is empty"},
	}
	life := newLifetime(func() {})
	s := newServer(picky{talker{diagnostics: want}}, life)

	configured, err := s.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{})
	if err != nil || !reflect.DeepEqual(configured.Diagnostics, want) {
		t.Errorf("it is configured with %+v, %v", configured, err)
	}

	planned, err := s.PlanAction(t.Context(), &tfprotov6.PlanActionRequest{})
	if err != nil || !reflect.DeepEqual(planned.Diagnostics, want) {
		t.Errorf("the action is planned with %+v, %v", planned, err)
	}

	stream, err := s.InvokeAction(t.Context(), &tfprotov6.InvokeActionRequest{})
	if err != nil {
		t.Fatal(err)
	}

	events := slices.Collect(stream.Events)
	if last := (tfprotov6.CompletedInvokeActionEventType{Diagnostics: want}); len(events) != 1 || !reflect.DeepEqual(events[0].Type, last) {
		t.Errorf("the action says %+v", events)
	}

	if life.running != 0 || len(s.invoked) != 0 {
		t.Errorf("%d calls and %d actions are going on", life.running, len(s.invoked))
	}
}

// TestServer_LoggersReachTheFrameworkWhereSomebodyAsksForLogs: what is not read costs too much to write.
func TestServer_LoggersReachTheFrameworkWhereSomebodyAsksForLogs(t *testing.T) {
	for _, variable := range slices.DeleteFunc(os.Environ(), func(one string) bool { return !asksForLogs(one) }) {
		name, _, _ := strings.Cut(variable, "=")
		t.Setenv(name, "")

		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}

	read := func() string {
		s := newServer(talker{}, newLifetime(func() {}))

		answer, err := s.ReadResource(context.WithValue(t.Context(), passed{}, "a logger"), &tfprotov6.ReadResourceRequest{})
		if err != nil {
			t.Fatal(err)
		}

		return string(answer.Private)
	}

	if got := read(); got != "" {
		t.Errorf("without anybody who asks for logs it gets %q", got)
	}

	t.Setenv("TF_LOG_PROVIDER", "DEBUG")

	if got := read(); got != "a logger" {
		t.Errorf("with TF_LOG_PROVIDER it gets %q", got)
	}
}
