// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
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
func (f *fakeCluster) actionServer(t *testing.T, options ...connection.Option) (tfprotov6.ProviderServer, tfprotov6.ActionServer, *tfprotov6.GetProviderSchemaResponse) {
	t.Helper()

	options = append([]connection.Option{func(s *connection.Settings) { s.Dial = f.dial }}, options...)

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
func (f *fakeCluster) invoke(ctx context.Context, t *testing.T, name string, set map[string]tftypes.Value, hear func(line string), options ...connection.Option) said {
	t.Helper()

	_, actions, schema := f.actionServer(t, options...)
	config := onWire(t, schema.ActionSchemas["talosupgrade_"+name].Schema, set)

	validated, err := actions.ValidateActionConfig(ctx, &tfprotov6.ValidateActionConfigRequest{ActionType: "talosupgrade_" + name, Config: config})
	if err != nil {
		t.Fatal(err)
	}

	if len(validated.Diagnostics) > 0 {
		return said{diagnostics: told.NotedOnWire(t, validated.Diagnostics)}
	}

	return invoked(ctx, t, actions, name, config, hear)
}

// invoked plans and invokes an action whose configuration is valid, or was not known when it was validated.
func invoked(ctx context.Context, t *testing.T, actions tfprotov6.ActionServer, name string, config *tfprotov6.DynamicValue, hear func(line string)) said {
	t.Helper()

	planned, err := actions.PlanAction(ctx, &tfprotov6.PlanActionRequest{ActionType: "talosupgrade_" + name, Config: config})
	if err != nil || len(planned.Diagnostics) > 0 {
		t.Fatal(err, planned.Diagnostics)
	}

	stream, err := actions.InvokeAction(ctx, &tfprotov6.InvokeActionRequest{ActionType: "talosupgrade_" + name, Config: config})
	if err != nil {
		t.Fatal(err)
	}

	var heard said

	ended := false

	for event := range stream.Events {
		if ended {
			t.Errorf("it goes on after its last word: %+v", event)
		}

		switch event := event.Type.(type) {
		case tfprotov6.ProgressInvokeActionEventType:
			heard.lines = append(heard.lines, event.Message)
			wording.NoteLine(t, event.Message)

			if hear != nil {
				hear(event.Message)
			}
		case tfprotov6.CompletedInvokeActionEventType:
			heard.diagnostics, ended = told.NotedOnWire(t, event.Diagnostics), true
		}
	}

	if !ended {
		t.Error("it has no last word")
	}

	return heard
}

// TestAction_EachIsDocumentedAndBounded: one that is new is bounded, and documented.
func TestAction_EachIsDocumentedAndBounded(t *testing.T) {
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

		for _, common := range []string{attrname.Context, attrname.Timeout} {
			if !slices.Contains(names, common) {
				t.Errorf("%s has no %s", name, common)
			}
		}
	}

	if diff := cmp.Diff([]string{
		"talosupgrade_etcd_snapshot",
		"talosupgrade_resume", "talosupgrade_retry_node", "talosupgrade_rollback", "talosupgrade_suspend",
	}, slices.Sorted(maps.Keys(schema.ActionSchemas))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestAction_WaitsForUnknownValues: a value of the provider block or of the action that only
// an apply will know is no reason to ask the wrong cluster, or any.
func TestAction_WaitsForUnknownValues(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	unknown := tftypes.NewValue(tftypes.String, tftypes.UnknownValue)

	failed := fake.invoke(t.Context(), t, "resume", map[string]tftypes.Value{"context": unknown}, nil).failed(t)
	if !strings.Contains(failed.Detail, "known only after an apply") || fake.dialled > 0 {
		t.Errorf("it says %q, and dialled %d times", failed.Detail, fake.dialled)
	}
}

// TestAction_RefusesAnInvalidDuration, before anything is asked.
func TestAction_RefusesAnInvalidDuration(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")

	failed := fake.invoke(t.Context(), t, "resume", map[string]tftypes.Value{"timeout": wireText("soon")}, nil).failed(t)
	if failed.Attribute.String() != `AttributeName("timeout")` || fake.dialled > 0 {
		t.Errorf("it says %q at %s, and dialled %d times", failed.Detail, failed.Attribute, fake.dialled)
	}
}

// TestAction_ReachesTheContextItNames.
func TestAction_ReachesTheContextItNames(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	fake.leaseErr = cluster.ErrDenied

	failed := fake.invoke(t.Context(), t, "resume", map[string]tftypes.Value{"context": wireText("prod")}, nil).failed(t)
	if fake.wanted != "prod" || fake.dialled != fake.closed {
		t.Errorf("it reached %q, and closed %d of %d connections: %s", fake.wanted, fake.closed, fake.dialled, failed.Summary)
	}
}

// TestAction_SaysThatItWasInterrupted wants an action that was interrupted to say so, and one that takes too long to say
// what to raise.
func TestAction_SaysThatItWasInterrupted(t *testing.T) {
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		fake := threeNodes("1.12.6", "1.34.1")
		fake.leaseErr, fake.leaseRead = cluster.ErrUnreachable, cancel

		failed := fake.invoke(ctx, t, "resume", nil, nil).failed(t)
		if !strings.Contains(failed.Detail, "Interrupted before it was done.") {
			t.Errorf("it says %q", failed.Detail)
		}
	})

	t.Run("late", func(t *testing.T) {
		fake := threeNodes("1.12.6", "1.34.1")
		fake.leaseErr = cluster.ErrUnreachable

		failed := fake.invoke(t.Context(), t, "resume", map[string]tftypes.Value{"timeout": wireText("10ms")}, nil).failed(t)
		if !strings.Contains(failed.Detail, "timeout = 10ms") || !strings.Contains(failed.Detail, "Raise timeout") {
			t.Errorf("it says %q", failed.Detail)
		}
	})
}

// TestAction_FailureAfterItsTimeoutSaysBoth: what to raise, and how things were left.
func TestAction_FailureAfterItsTimeoutSaysBoth(t *testing.T) {
	late := fmt.Errorf("%w = 20s", errLate)
	failed := &say.Failure{Summary: "The upgrade was cancelled before it began", Seen: "It waited for the lease.", State: "Nothing was touched.", Remedy: "Run terraform apply again.", Err: context.Canceled}

	got := told.Noted(t, diag.Diagnostics{(&clusterAction{doing: "allow another try on the node"}).problem(fmt.Errorf("%w: %w", late, failed))})[0]
	want := "It took longer than timeout = 20s. It waited for the lease.\n\nNothing was touched.\n\nRaise timeout of the action"

	if got.Summary() != "Unable to allow another try on the node" || !strings.HasPrefix(got.Detail(), want) {
		t.Errorf("it says %q: %q", got.Summary(), got.Detail())
	}
}

// TestAction_RefusesAnOperatorThatWouldUndoIt, before anything is asked.
func TestAction_RefusesAnOperatorThatWouldUndoIt(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	kind := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"api_version": tftypes.String, "kind": tftypes.String, "namespace": tftypes.String, "name": tftypes.String}}
	object := tftypes.NewValue(kind, map[string]tftypes.Value{
		"api_version": tftypes.NewValue(tftypes.String, nil), "kind": wireText("TalosControlPlane"), "namespace": wireText("tenant-a"), "name": wireText("prod"),
	})

	failed := fake.invoke(t.Context(), t, "rollback", map[string]tftypes.Value{"node": wireText("worker-0"), "publish_to": object}, nil).failed(t)
	if failed.Attribute.String() != `AttributeName("publish_to")` || !strings.Contains(failed.Detail, "it would undo the rollback") || fake.dialled > 0 {
		t.Errorf("it says %q at %s, and dialled %d times", failed.Detail, failed.Attribute, fake.dialled)
	}
}

// TestAction_LinesArriveInOrder, all of them before the last word, and nobody waits for whoever
// reads them.
func TestAction_LinesArriveInOrder(t *testing.T) {
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

// TestAction_GoesOnWhenNobodyTakesItsLines: the command line has gone.
func TestAction_GoesOnWhenNobodyTakesItsLines(t *testing.T) {
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

func TestAction_NamesANodeThatDoesNotExist(t *testing.T) {
	for name, summary := range map[string]string{
		"rollback": "Unable to roll back node worker-9", "retry_node": "Unable to allow another try on node worker-9",
	} {
		fake := threeNodes("1.12.6", "1.34.1")

		failed := fake.invoke(t.Context(), t, name, map[string]tftypes.Value{"node": wireText("worker-9")}, nil).failed(t)
		if failed.Summary != summary || !strings.Contains(failed.Detail, `No node of this cluster is called "worker-9". There are: `) || !strings.Contains(failed.Detail, "Nothing was touched.") {
			t.Errorf("%s says %s: %s", name, failed.Summary, failed.Detail)
		}
	}
}

// TestAction_SaysWhenNothingWasEverUpgraded: nothing was ever upgraded by an apply.
func TestAction_SaysWhenNothingWasEverUpgraded(t *testing.T) {
	for name, want := range map[string]string{
		"rollback": "it remembers that of nodes that terraform apply has upgraded", "retry_node": "no image is kept from it",
	} {
		fake := threeNodes("1.12.6", "1.34.1")
		fake.journal = cluster.Journal{}

		failed := fake.invoke(t.Context(), t, name, map[string]tftypes.Value{"node": wireText("worker-0")}, nil).failed(t)
		if !strings.Contains(failed.Detail, want) {
			t.Errorf("%s says %s: %s", name, failed.Summary, failed.Detail)
		}
	}
}

// wireKind is an object with these attributes, as it is on the wire.
func wireKind(t *testing.T, attributes map[string]attr.Type) tftypes.Object {
	t.Helper()

	kind, is := types.ObjectType{AttrTypes: attributes}.TerraformType(t.Context()).(tftypes.Object)
	if !is {
		t.Fatal("it is no object")
	}

	return kind
}

// TestRollback_RefusesInvalidDrainSettings, before anything is asked.
func TestRollback_RefusesInvalidDrainSettings(t *testing.T) {
	kind := wireKind(t, typesOf[drainModel]())
	fake := threeNodes("1.12.6", "1.34.1")

	for name, value := range map[string]string{"timeout": "soon", "on_timeout": "hope"} {
		failed := fake.invoke(t.Context(), t, "rollback", map[string]tftypes.Value{"node": wireText("worker-0"), "drain": empty(kind, map[string]tftypes.Value{name: wireText(value)})}, nil).failed(t)
		if !strings.Contains(failed.Detail, "drain."+name) || fake.dialled > 0 {
			t.Errorf("it says %q at %s, and dialled %d times", failed.Detail, failed.Attribute, fake.dialled)
		}
	}
}

// WriteSuspension implements [cluster.Kubernetes].
func (f *fakeCluster) WriteSuspension(_ context.Context, _ cluster.Lease, reason *string) (cluster.Lease, error) {
	if f.leaseErr != nil {
		return cluster.Lease{}, f.leaseErr
	}

	f.lease.Suspended, f.lease.ResourceVersion = nil, "8"
	if reason != nil {
		f.lease.Suspended = &cluster.Suspension{Reason: *reason, By: "talosupgrade_suspend", Since: time.Date(2026, 11, 25, 3, 10, 0, 0, time.UTC)}
	}

	return f.lease, nil
}

func TestSuspend_AndResumeSayWhoSuspended(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	reason := map[string]tftypes.Value{attrname.Reason: wireText("ola: storage is degraded")}

	for _, step := range []struct {
		action string
		set    map[string]tftypes.Value
		says   string
	}{
		{"resume", nil, "Upgrades of this cluster were not suspended."},
		{"suspend", reason, "Upgrades of this cluster are suspended: ola: storage is degraded."},
		{"suspend", map[string]tftypes.Value{attrname.Reason: wireText("kari")}, "Upgrades of this cluster were suspended already, since 2026-11-25T03:10:00Z (talosupgrade_suspend): ola: storage is degraded. " +
			"That stays as it is: talosupgrade_resume takes it away."},
		{"resume", nil, "Upgrades of this cluster are no longer suspended. They had been suspended since 2026-11-25T03:10:00Z (talosupgrade_suspend): ola: storage is degraded."},
	} {
		if told := fake.invoke(t.Context(), t, step.action, step.set, nil).well(t); !slices.Equal(told.lines, []string{step.says}) {
			t.Errorf("%s says %q, want %q", step.action, told.lines, step.says)
		}
	}

	fake.leaseErr = cluster.ErrDenied

	for action, set := range map[string]map[string]tftypes.Value{"suspend": reason, "resume": nil} {
		if failed := fake.invoke(t.Context(), t, action, set, nil).failed(t); !strings.Contains(failed.Detail, "patch leases in kube-system") {
			t.Errorf("%s says %s: %s", action, failed.Summary, failed.Detail)
		}
	}
}

func TestSuspend_RefusesUnusableReasons(t *testing.T) {
	for reason, says := range map[string]string{
		" ": "reason is empty", "": "reason is empty", "false": "as good as no suspension", strings.Repeat("x", 501): "has 501 characters, and 500 are allowed",
	} {
		fake := threeNodes("1.12.6", "1.34.1")

		failed := fake.invoke(t.Context(), t, "suspend", map[string]tftypes.Value{attrname.Reason: wireText(reason)}, nil).failed(t)
		if !strings.Contains(failed.Detail, says) || fake.dialled > 0 {
			t.Errorf("%q: %s", reason, failed.Detail)
		}
	}
}

func TestSnapshotAction_SaysWhatItSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	set := map[string]tftypes.Value{attrname.Directory: wireText(dir)}

	fake := threeNodes("1.12.6", "1.34.1")
	if failed := fake.invoke(t.Context(), t, "etcd_snapshot", set, nil).failed(t); failed.Summary != "Unable to take a snapshot of etcd" {
		t.Errorf("it says %s: %s", failed.Summary, failed.Detail)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	set[attrname.Directory] = wireText(file)
	if failed := fake.invoke(t.Context(), t, "etcd_snapshot", set, nil).failed(t); failed.Summary != "Unable to save a snapshot of etcd" {
		t.Errorf("it says %s: %s", failed.Summary, failed.Detail)
	}
}

// steppedClock moves on with each look.
type steppedClock struct {
	engine.Clock

	mu  sync.Mutex
	now time.Time
}

// Now implements [engine.Clock].
func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(3 * time.Second)

	return c.now
}

// TestSnapshotAction_ReportsProgressEveryFewSeconds, every few seconds.
func TestSnapshotAction_ReportsProgressEveryFewSeconds(t *testing.T) {
	var lines []string

	on := &invocation{lines: newProgressLines(func(line string) { lines = append(lines, line) })}
	counted := countedStore{on: on, clock: &steppedClock{}}
	writer := &countedWriter{Writer: io.Discard, store: counted, said: counted.clock.Now()}

	for range 4 {
		if _, err := writer.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}

	on.lines.close()

	if want := []string{"2.0 MiB so far", "4.0 MiB so far"}; !slices.Equal(lines, want) {
		t.Errorf("it says %q, want %q", lines, want)
	}
}
