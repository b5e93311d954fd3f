// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// said is what an action told the command line, in order.
type said struct {
	lines       []string
	diagnostics []*tfprotov6.Diagnostic
}

// text is all of it.
func (s said) text() string {
	lines := slices.Clone(s.lines)
	for _, diagnostic := range s.diagnostics {
		lines = append(lines, diagnostic.Summary, diagnostic.Detail)
	}

	return strings.Join(lines, "\n")
}

// failed is the one error of the action; it fails the test where there is another number.
func (s said) failed(t *testing.T) *tfprotov6.Diagnostic {
	t.Helper()

	if len(s.diagnostics) != 1 || s.diagnostics[0].Severity != tfprotov6.DiagnosticSeverityError {
		t.Fatalf("it ended with %d diagnostics, want one error:\n%s", len(s.diagnostics), s.text())
	}

	return s.diagnostics[0]
}

// well fails the test where there is a diagnostic.
func (s said) well(t *testing.T) said {
	t.Helper()

	if len(s.diagnostics) > 0 {
		t.Fatalf("it ended with diagnostics:\n%s", s.text())
	}

	return s
}

// actionServer is the provider on the wire, as it reaches nothing but the fake.
func (f *fakeCluster) actionServer(t *testing.T, options ...Option) (tfprotov6.ProviderServer, tfprotov6.ActionServer, *tfprotov6.GetProviderSchemaResponse) {
	t.Helper()

	options = append([]Option{func(s *settings) { s.dial = f.dial }}, options...)

	server, err := providerserver.NewProtocol6WithError(New("test", options...)())()
	if err != nil {
		t.Fatal(err)
	}

	schema, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}

	actions, has := server.(tfprotov6.ActionServer)
	if !has {
		t.Fatal("the server has no actions")
	}

	configured, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: onWire(t, schema.Provider, nil)})
	if err != nil || len(configured.Diagnostics) > 0 {
		t.Fatal(err, configured.Diagnostics)
	}

	return server, actions, schema
}

// onWire is a configuration in which only the given attributes are set.
func onWire(t *testing.T, schema *tfprotov6.Schema, set map[string]tftypes.Value) *tfprotov6.DynamicValue {
	t.Helper()

	object, isObject := schema.ValueType().(tftypes.Object)
	if !isObject {
		t.Fatal("the schema is no object")
	}

	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
	}

	maps.Copy(values, set)

	config, err := tfprotov6.NewDynamicValue(object, tftypes.NewValue(object, values))
	if err != nil {
		t.Fatal(err)
	}

	return &config
}

// wireText is a value of an attribute.
func wireText(value string) tftypes.Value { return tftypes.NewValue(tftypes.String, value) }

// invoke plans and invokes an action on the fake as the command line does. Hear is called with each
// line; nil for nobody.
func (f *fakeCluster) invoke(ctx context.Context, t *testing.T, name string, set map[string]tftypes.Value, hear func(line string), options ...Option) said {
	t.Helper()

	_, actions, schema := f.actionServer(t, options...)
	config := onWire(t, schema.ActionSchemas["talosupgrade_"+name].Schema, set)

	validated, err := actions.ValidateActionConfig(ctx, &tfprotov6.ValidateActionConfigRequest{ActionType: "talosupgrade_" + name, Config: config})
	if err != nil {
		t.Fatal(err)
	}

	if len(validated.Diagnostics) > 0 {
		return said{diagnostics: notedOnWire(t, validated.Diagnostics)}
	}

	planned, err := actions.PlanAction(ctx, &tfprotov6.PlanActionRequest{ActionType: "talosupgrade_" + name, Config: config})
	if err != nil || len(planned.Diagnostics) > 0 {
		t.Fatal(err, planned.Diagnostics)
	}

	stream, err := actions.InvokeAction(ctx, &tfprotov6.InvokeActionRequest{ActionType: "talosupgrade_" + name, Config: config})
	if err != nil {
		t.Fatal(err)
	}

	var told said

	ended := false

	for event := range stream.Events {
		if ended {
			t.Errorf("it goes on after its last word: %+v", event)
		}

		switch event := event.Type.(type) {
		case tfprotov6.ProgressInvokeActionEventType:
			told.lines = append(told.lines, event.Message)

			if hear != nil {
				hear(event.Message)
			}
		case tfprotov6.CompletedInvokeActionEventType:
			told.diagnostics, ended = notedOnWire(t, event.Diagnostics), true
		}
	}

	if !ended {
		t.Error("it has no last word")
	}

	return told
}

// TestEveryActionExplainsItself: one that is new is bounded, and documented.
func TestEveryActionExplainsItself(t *testing.T) {
	_, schema := serve(t)

	for name, action := range schema.ActionSchemas {
		if action.Schema.Block.Description == "" {
			t.Errorf("%s has no description", name)
		}

		var names []string

		for _, attribute := range action.Schema.Block.Attributes {
			names = append(names, attribute.Name)

			if attribute.Description == "" {
				t.Errorf("%s of %s has no description", attribute.Name, name)
			}
		}

		for _, common := range []string{attrContext, attrTimeout} {
			if !slices.Contains(names, common) {
				t.Errorf("%s has no %s", name, common)
			}
		}
	}

	if diff := cmp.Diff([]string{
		"talosupgrade_etcd_snapshot", "talosupgrade_follow", "talosupgrade_lock_status", "talosupgrade_preflight",
		"talosupgrade_resume", "talosupgrade_retry_node", "talosupgrade_rollback", "talosupgrade_suspend",
	}, slices.Sorted(maps.Keys(schema.ActionSchemas))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestActionsWaitForWhatIsNotKnown: a value of the provider block or of the action that only
// an apply will know is no reason to ask the wrong cluster, or any.
func TestActionsWaitForWhatIsNotKnown(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	unknown := tftypes.NewValue(tftypes.String, tftypes.UnknownValue)

	failed := fake.invoke(t.Context(), t, "lock_status", map[string]tftypes.Value{"context": unknown}, nil).failed(t)
	if !strings.Contains(failed.Detail, "known only after an apply") || fake.dialled > 0 {
		t.Errorf("it says %q, and dialled %d times", failed.Detail, fake.dialled)
	}
}

// TestActionsRefuseADurationThatIsNone, before anything is asked.
func TestActionsRefuseADurationThatIsNone(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")

	failed := fake.invoke(t.Context(), t, "lock_status", map[string]tftypes.Value{"timeout": wireText("soon")}, nil).failed(t)
	if failed.Attribute.String() != `AttributeName("timeout")` || fake.dialled > 0 {
		t.Errorf("it says %q at %s, and dialled %d times", failed.Detail, failed.Attribute, fake.dialled)
	}
}

// TestActionsReachTheContextThatTheyName.
func TestActionsReachTheContextThatTheyName(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	fake.kubernetesDown = cluster.ErrDenied

	failed := fake.invoke(t.Context(), t, "lock_status", map[string]tftypes.Value{"context": wireText("prod")}, nil).failed(t)
	if fake.wanted != "prod" || fake.dialled != fake.closed {
		t.Errorf("it reached %q, and closed %d of %d connections: %s", fake.wanted, fake.closed, fake.dialled, failed.Summary)
	}
}

// TestAnActionThatIsInterruptedSaysSo, and one that takes too long says what to raise.
func TestAnActionThatIsInterruptedSaysSo(t *testing.T) {
	t.Run("interrupted", func(t *testing.T) {
		fake := threeNodes("1.12.6", "1.34.1")
		fake.lease = cluster.Lease{Holder: "run-1", ResourceVersion: "7"}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		failed := fake.invoke(ctx, t, "lock_status", nil, func(line string) {
			if strings.Contains(line, "watching for 30s") {
				cancel()
			}
		}).failed(t)
		if !strings.Contains(failed.Detail, "Interrupted before it was done.") {
			t.Errorf("it says %q", failed.Detail)
		}
	})

	t.Run("late", func(t *testing.T) {
		fake := threeNodes("1.12.6", "1.34.1")
		fake.lease = cluster.Lease{Holder: "run-1", ResourceVersion: "7"}

		failed := fake.invoke(t.Context(), t, "lock_status", map[string]tftypes.Value{"timeout": wireText("10ms")}, nil).failed(t)
		if !strings.Contains(failed.Detail, "timeout = 10ms") || !strings.Contains(failed.Detail, "Raise timeout") {
			t.Errorf("it says %q", failed.Detail)
		}
	})
}

// TestLinesArriveInOrder, all of them before the last word, and nobody waits for whoever
// reads them.
func TestLinesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu   sync.Mutex
			read []string
		)

		lines := newProgressLines(func(line string) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()

			read = append(read, line)
		})

		began := time.Now()

		for _, line := range []string{"a", "b", "c", "d"} {
			lines.add(line)
		}

		if waited := time.Since(began); waited > 0 {
			t.Errorf("whoever added them waited for %s", waited)
		}

		lines.close()
		mu.Lock()
		defer mu.Unlock()

		if !slices.Equal(read, []string{"a", "b", "c", "d"}) {
			t.Errorf("read were %q", read)
		}
	})
}

// TestLinesThatNobodyTakesEndNothing: the command line has gone.
func TestLinesThatNobodyTakesEndNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan struct{})
		lines := newProgressLines(func(string) { <-taken })

		lines.add("a")
		lines.add("b")

		began := time.Now()
		lines.close()

		if waited := time.Since(began); waited != linesPatience {
			t.Errorf("it waited for %s", waited)
		}

		close(taken)
	})
}
