// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

// TestReport_SuspendedRunStopped: a run that a suspension ended is shown as stopped, one that it kept from beginning as
// refused.
func TestReport_SuspendedRunStopped(t *testing.T) {
	for want, err := range map[report.Outcome]error{
		report.Stopped: say.ErrSuspended, report.Refused: errors.Join(say.ErrSuspended, say.ErrNotBegun), report.Failed: say.ErrGate,
	} {
		if got := publication.EndingOf(cluster.Observation{}, err).Outcome; got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// create runs Create on a plan.
func create(t *testing.T, clusters *connection.Clusters, plan *clusterModel) (*clusterModel, diag.Diagnostics) {
	t.Helper()

	proposed := stateOf(t, plan)
	resp := resource.CreateResponse{State: stateOf(t, nil), Identity: identityOf(t, nil)}

	(&clusterResource{clusters: clusters}).Create(t.Context(), resource.CreateRequest{Plan: tfsdk.Plan(proposed)}, &resp)

	return modelOf(t, resp.State), told.Noted(t, resp.Diagnostics)
}

// apply runs Update from a prior state to a plan.
func apply(t *testing.T, clusters *connection.Clusters, prior, plan *clusterModel) (*clusterModel, diag.Diagnostics) {
	t.Helper()

	req := resource.UpdateRequest{State: stateOf(t, prior), Plan: tfsdk.Plan(stateOf(t, plan))}
	resp := resource.UpdateResponse{State: stateOf(t, prior), Identity: identityOf(t, prior)}

	(&clusterResource{clusters: clusters}).Update(t.Context(), req, &resp)

	return modelOf(t, resp.State), told.Noted(t, resp.Diagnostics)
}

func TestCreate_OnAConvergedClusterStoresWhatRuns(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")

	got, diagnostics := create(t, fake.clusters(t), desired("v1.13.4", ""))
	check(t, diagnostics)

	want := stored(t, fake, "1.13.4", "")
	if got.ID.ValueString() != "cluster-a" || !got.Nodes.Equal(want.Nodes) || !got.Status.Equal(want.Status) {
		t.Errorf("got %s, %s, %s", got.ID, got.Status, got.Nodes)
	}
}

func TestCreate_StoresNothingWhenRefused(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.roles = []string{"os:reader"}

	got, diagnostics := create(t, fake.clusters(t), desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "os:admin"})

	if got != nil {
		t.Error("something was stored, which taints the resource")
	}
}

func TestUpdate_RefusedKeepsTheTargetAndStoresWhatRuns(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	prior := stored(t, fake, "1.12.6", "")
	fake.nodes[1].talos = "1.13.4"
	fake.nodes[2].unreachable = cluster.ErrUnreachable

	plan := desired("1.13.4", "")
	plan.ID = prior.ID

	got, diagnostics := apply(t, fake.clusters(t), prior, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "worker-1"})

	if got.TalosVersion.ValueString() != "1.12.6" {
		t.Errorf("talos_version became %s: the work would be lost", got.TalosVersion)
	}

	nodes := map[string]nodeModel{}
	wellDone(t, got.Nodes.ElementsAs(t.Context(), &nodes, false))

	if nodes["worker-0"].TalosVersion.ValueString() != "1.13.4" || nodes["worker-1"].TalosVersion.ValueString() != "1.12.6" {
		t.Errorf("nodes in state: %s", got.Nodes)
	}

	if got.Status.IsUnknown() || !stateOf(t, got).Raw.IsFullyKnown() {
		t.Error("unknown values are left in state")
	}
}

func TestUpdate_OutOfReachKeepsTheState(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	prior := stored(t, fake, "1.12.6", "")
	fake.down = cluster.ErrUnreachable

	plan := desired("1.13.4", "")
	plan.ID = prior.ID

	got, diagnostics := apply(t, fake.clusters(t), prior, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "unreachable"})

	if !stateOf(t, got).Raw.Equal(stateOf(t, prior).Raw) {
		t.Error("the state changed")
	}
}

func TestUpdate_OfAnotherClusterIsRefused(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	prior := stored(t, fake, "1.12.6", "")
	fake.id = "cluster-b"

	plan := desired("1.13.4", "")
	plan.ID = prior.ID

	got, diagnostics := apply(t, fake.clusters(t), prior, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "cluster-b"})

	if !stateOf(t, got).Raw.Equal(stateOf(t, prior).Raw) {
		t.Error("the state changed")
	}
}

func TestImport_OfACluster(t *testing.T) {
	for name, test := range map[string]struct {
		id   string
		want []outcome
	}{
		"current":                           {"current", nil},
		"by ID":                             {"cluster-a", nil},
		"with context":                      {"prod/current", nil},
		"another cluster":                   {"cluster-b", []outcome{{diag.SeverityError, `asks for cluster "cluster-b", but this provider reaches cluster "cluster-a"`}}},
		"one that does not say which it is": {"cluster-c", []outcome{{diag.SeverityError, `asks for cluster "cluster-c", but neither discovery nor Kubernetes tells which cluster`}}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			fake.nodes[1].talos = "1.13.0"

			if test.id == "cluster-c" {
				fake.id, fake.uidErr = "", cluster.ErrUnreachable
			}

			resp := resource.ImportStateResponse{State: stateOf(t, nil), Identity: identityOf(t, nil)}
			(&clusterResource{clusters: fake.clusters(t)}).ImportState(t.Context(), resource.ImportStateRequest{ID: test.id}, &resp)
			check(t, told.Noted(t, resp.Diagnostics), test.want...)

			if len(test.want) > 0 {
				return
			}

			got := modelOf(t, resp.State)
			if got.TalosVersion.ValueString() != "1.13.0" || got.KubernetesVersion.ValueString() != "1.34.2" {
				t.Errorf("imported %s and %s, want the lowest that run", got.TalosVersion, got.KubernetesVersion)
			}

			if got.ID.ValueString() != "cluster-a" || !resp.State.Raw.IsFullyKnown() {
				t.Errorf("imported %s", resp.State.Raw)
			}
		})
	}
}

// bootClock is a clock on which nothing but pauses takes time. Each of them is told.
type bootClock struct {
	engine.Clock

	now    time.Time
	paused func(until time.Time)
}

func (c *bootClock) Now() time.Time { return c.now }

func (c *bootClock) Sleep(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	c.paused(c.now)

	return ctx.Err()
}

// WithTimeout ends with the pause in which the time is used up.
func (c *bootClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancel(ctx)
	until, told := c.now.Add(d), c.paused

	c.paused = func(now time.Time) {
		told(now)

		if !now.Before(until) {
			cancel()
		}
	}

	return bounded, cancel
}

// TestCreate_WaitsForAClusterThatComesUp: machines that were bootstrapped a moment ago
// take minutes until they answer.
func TestCreate_WaitsForAClusterThatComesUp(t *testing.T) {
	none := func(*fakeCluster) {}

	for name, test := range map[string]struct {
		before, after func(*fakeCluster)
		limit         time.Duration
		// waits is how long it waits.
		waits time.Duration
	}{
		"it answers":                           {none, none, time.Hour, 0},
		"nothing answers yet":                  {func(f *fakeCluster) { f.down = cluster.ErrUnreachable }, func(f *fakeCluster) { f.down = nil }, time.Hour, time.Minute},
		"the Kubernetes API does not, yet":     {func(f *fakeCluster) { f.kubernetesDown = cluster.ErrUnreachable }, func(f *fakeCluster) { f.kubernetesDown = nil }, time.Hour, time.Minute},
		"it never answers":                     {func(f *fakeCluster) { f.down = cluster.ErrUnreachable }, none, time.Hour, 15 * time.Minute},
		"it never answers within the limit":    {func(f *fakeCluster) { f.down = cluster.ErrUnreachable }, none, 2 * time.Minute, 2 * time.Minute},
		"it refuses, which no waiting changes": {func(f *fakeCluster) { f.down = cluster.ErrDenied }, none, time.Hour, 0},
		"the certificate has expired":          {func(f *fakeCluster) { f.down = cluster.ErrCredentials }, none, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			test.before(fake)

			began := time.Date(2026, 3, 14, 1, 0, 0, 0, time.UTC)
			clock := &bootClock{now: began, paused: func(now time.Time) {
				if now.Sub(began) >= time.Minute {
					test.after(fake)
				}
			}}

			clusters := fake.clusters(t)
			clusters.Settings.Clock, clusters.Settings.Patience = clock, 15*time.Minute

			left := clusters.Await(t.Context(), "", test.limit)
			if waited := clock.now.Sub(began); waited != test.waits || left != max(test.limit-waited, 1) {
				t.Errorf("it waited %s, want %s; %s of %s are left", waited, test.waits, left, test.limit)
			}
		})
	}
}

// TestReport_WithoutAPlaceFailsThePlan: if nothing changes, no apply follows, and nothing is looked at.
func TestReport_WithoutAPlaceFailsThePlan(t *testing.T) {
	directory := t.TempDir()
	foreign := filepath.Join(directory, "letter.html")

	if err := os.WriteFile(foreign, []byte("Dear Sir or Madam"), 0o600); err != nil {
		t.Fatal(err)
	}

	single, roll := outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"}

	theirs := outcome{diag.SeverityError, "it is there already and is no report of this provider"}

	for name, test := range map[string]struct {
		path, talos string
		exists      bool
		want        []outcome
	}{
		"a directory":              {directory, "1.13.4", false, []outcome{{diag.SeverityError, "it is a directory"}, single}},
		"a device":                 {os.DevNull, "1.13.4", false, []outcome{{diag.SeverityError, "it is a device, a pipe or a socket, and no file"}, single}},
		"somebody else's file":     {foreign, "1.13.4", false, []outcome{theirs, single}},
		"a file that can be":       {filepath.Join(directory, "made", "later", "report.html"), "1.13.4", false, []outcome{single, roll}},
		"a new resource":           {foreign, "1.12.6", false, []outcome{theirs}},
		"nothing changes":          {foreign, "1.12.6", true, nil},
		"it is not known yet what": {"", "1.13.4", false, []outcome{single, roll}},
	} {
		t.Run(name, func(t *testing.T) {
			fake, model := threeNodes("1.12.6", "1.34.2"), desired(test.talos, "")
			model.ReportPath = types.StringValue(test.path)

			if test.path == "" {
				model.ReportPath = types.StringUnknown()
			}

			var prior *clusterModel
			if test.exists {
				prior = stored(t, fake, test.talos, "")
				prior.ReportPath = model.ReportPath
				model = prior
			}

			_, diagnostics := planned(t, fake.clusters(t), prior, model)
			check(t, diagnostics, test.want...)

			if _, err := os.Stat(filepath.Join(directory, "made")); err == nil {
				t.Error("the plan made a directory")
			}
		})
	}
}

func TestReport_RefusesUnusablePaths(t *testing.T) {
	for path, says := range map[string]string{
		"":                            "is empty",
		"a\nb":                        "no path can hold",
		"~/upgrade.html":              `pathexpand("~/upgrade.html")`,
		"https://example.com/up.html": "is an address",
		"reports/":                    `such as "reports/upgrade.html"`,
	} {
		t.Run(says, func(t *testing.T) {
			check(t, judged(reportPathText(), path)(t), outcome{diag.SeverityError, says})
		})
	}

	check(t, judged(reportPathText(), "reports/upgrade.html")(t))
}

// TestReport_WithoutAPlaceStopsTheUpgrade before it looks at the cluster.
func TestReport_WithoutAPlaceStopsTheUpgrade(t *testing.T) {
	fake := threeNodes("1.13.0", "1.34.2")
	wanted := desired("1.13.4", "")
	wanted.ReportPath = types.StringValue(filepath.Join(t.TempDir(), "upgrade.html"))

	clusters := fake.clusters(t)
	if !clusters.Claims.ClaimFile(wanted.ReportPath.ValueString(), "another resource") {
		t.Fatal("nobody has the file, and it cannot be had")
	}

	state, diagnostics := create(t, clusters, wanted)
	check(t, diagnostics, outcome{diag.SeverityError, "another talosupgrade_cluster resource writes its own report there"})

	if state != nil || diagnostics[0].Summary() != "Unable to write the report" || !strings.Contains(diagnostics[0].Detail(), "Nothing was touched.") {
		t.Errorf("got %v", diagnostics)
	}
}

// TestReport_SaysOnceThatItCannotBeWritten has the whole text.
func TestReport_SaysOnceThatItCannotBeWritten(t *testing.T) {
	directory := t.TempDir()
	wanted := desired("1.13.4", "")
	wanted.ReportPath = types.StringValue(directory)

	_, diagnostics := create(t, threeNodes("1.13.0", "1.34.2").clusters(t), wanted)

	want := directory + " cannot be written: it is a directory. Nothing was touched.\n\n" +
		"Let report_path name a file that can be written on the machine that runs this, one for each resource, or remove it; then run the command again."
	if got := diagnostics[0]; got.Summary() != "Unable to write the report" || !strings.HasPrefix(got.Detail(), want) {
		t.Errorf("%s: %s\nwant %s", got.Summary(), got.Detail(), want)
	}
}

// TestReport_NoPlaceIsAWarningOfThePlan: the apply may run on another machine.
func TestReport_NoPlaceIsAWarningOfThePlan(t *testing.T) {
	t.Parallel()

	if runtime.GOOS != "linux" {
		t.Skip("it needs a directory that takes no file from anybody: /proc of Linux")
	}

	directory := t.TempDir()

	for place, says := range map[string]string{
		"/proc/upgrade.html":                            "/proc/upgrade.html cannot be written: no such file or directory. An apply on this machine would be refused",
		filepath.Join(directory, "upgrade.html"):        "",
		filepath.Join(directory, "new", "upgrade.html"): "",
	} {
		wanted := desired("1.13.4", "")
		wanted.ReportPath = types.StringValue(place)

		_, diagnostics := planned(t, threeNodes("1.13.0", "1.34.2").clusters(t), nil, wanted)

		warned := slices.DeleteFunc(slices.Clone(diagnostics), func(one diag.Diagnostic) bool { return one.Summary() != "Unable to write the report" })
		if (says != "") != (len(warned) == 1) || says != "" && (warned[0].Severity() != diag.SeverityWarning || !strings.Contains(warned[0].Detail(), says)) {
			t.Errorf("%s: %v", place, diagnostics)
		}
	}

	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("the plan left %v, %v", left, err)
	}
}

func TestReport_UnwritableAtTheEndIsAWarning(t *testing.T) {
	out := &publication.Observers{Report: report.New(report.Options{Path: filepath.Join(t.TempDir(), "gone", "upgrade.html")})}
	out.Report.Observe(cluster.Event{Kind: cluster.EventRunStarted, Time: time.Now()})

	check(t, told.Noted(t, out.Close(t.Context(), publication.Publication{}, "prod", cluster.Observation{}, nil)), outcome{diag.SeverityWarning, "no such file or directory"})
}

// collector keeps the spans that it is sent, and points the environment to itself.
type collector struct {
	mutex sync.Mutex
	spans []*tracepb.Span
}

func collecting(t *testing.T) *collector {
	t.Helper()

	made := &collector{}
	server := httptest.NewServer(made)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)

	return made
}

// ServeHTTP implements [http.Handler].
func (c *collector) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()

	message := &coltracepb.ExportTraceServiceRequest{}

	if body, err := io.ReadAll(req.Body); err != nil || proto.Unmarshal(body, message) != nil {
		return
	}

	for _, of := range message.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// TestTrace_RefusedUpgradeIsARootWithAnError, although nothing of it was ever begun.
func TestTrace_RefusedUpgradeIsARootWithAnError(t *testing.T) {
	to := collecting(t)
	fake := threeNodes("1.12.6", "1.34.2")
	fake.roles = []string{"os:reader"}

	_, diagnostics := create(t, fake.clusters(t), desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "os:admin"})

	if len(to.spans) != 1 {
		t.Fatalf("%d spans", len(to.spans))
	}

	root := to.spans[0]
	if status := root.GetStatus(); status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || status.GetMessage() != diagnostics.Errors()[0].Summary() {
		t.Errorf("the root says %v", root)
	}

	for _, one := range root.GetAttributes() {
		if one.GetKey() == "error.type" && one.GetValue().GetStringValue() != "blocked" {
			t.Errorf("the error is of type %v", one.GetValue())
		}
	}
}

// TestTrace_UnavailableIsAWarning, and the upgrade goes on without it.
func TestTrace_UnavailableIsAWarning(t *testing.T) {
	for title, test := range map[string]struct{ name, value, says string }{
		"an exporter": {"OTEL_TRACES_EXPORTER", "console", "standard output"},
		"nobody":      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "1 of 1 spans of the trace did not arrive"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Setenv(test.name, test.value)

			got, diagnostics := create(t, threeNodes("1.13.4", "1.34.2").clusters(t), desired("1.13.4", ""))
			check(t, told.Noted(t, diagnostics), outcome{diag.SeverityWarning, test.says})

			if got == nil {
				t.Error("nothing was stored")
			}

			if !strings.HasPrefix(diagnostics[0].Summary(), "Unable to trace the upgrade") || !strings.Contains(diagnostics[0].Detail(), "does not depend on it") {
				t.Errorf("got %v", diagnostics)
			}
		})
	}
}

// TestTrace_EndsQuicklyAfterACancel: the collector hangs.
func TestTrace_EndsQuicklyAfterACancel(t *testing.T) {
	var config net.ListenConfig

	hangs, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = hangs.Close() }()

	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+hangs.Addr().String())

	ctx, cancel := context.WithCancel(t.Context())
	traced := publication.StartTrace(ctx, "test", "cluster-a", engine.Options{ClusterName: "prod", Run: "run-1"}, engine.Request{}, publication.Publication{})

	cancel()

	began := time.Now()
	diagnostics := (&publication.Observers{Trace: traced}).Close(ctx, publication.Publication{}, "prod", cluster.Observation{}, errors.New("the upgrade was cancelled"))

	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}

	check(t, diagnostics, outcome{diag.SeverityWarning, "did not take them in time"})
}
