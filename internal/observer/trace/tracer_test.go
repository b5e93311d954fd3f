// SPDX-License-Identifier: MPL-2.0

package trace_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

var update = flag.Bool("update", false, "write the golden files")

func TestTracer_RunBecomesATree(t *testing.T) {
	for title, over := range map[string]func(testing.TB) *receiver{"http/protobuf": overHTTP, "grpc": overGRPC} {
		t.Run(title, func(t *testing.T) {
			told := tell(t, harness.Setup{Options: model.Options{ControlPlanes: 1, Workers: 1, Seed: 3}}, both(), 0)
			if told.err != nil {
				t.Fatal(told.err)
			}

			to := over(t)
			root := told.traced(t, to)

			if *update {
				if err := os.WriteFile("testdata/tree.txt", []byte(root.picture()), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			want, err := os.ReadFile("testdata/tree.txt")
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(string(want), root.picture()); diff != "" {
				t.Errorf("another tree (-update writes it):\n%s", diff)
			}

			if got := words(root.GetAttributes()); got["k8s.cluster.name"] != "prod" || got["talosupgrade.run.id"] != "run-1" ||
				got["talosupgrade.target.talos"] != harness.ToLifecycle || got["talosupgrade.mode"] != "direct" || got["talosupgrade.cluster.id"] == "" {
				t.Errorf("the root has %v", got)
			}

			if to.resource["service.name"] != "terraform-provider-talosupgrade" || to.resource["service.version"] != "1.2.3" {
				t.Errorf("the resource is %v", to.resource)
			}

			if len(root.GetParentSpanId()) > 0 || root.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_OK {
				t.Errorf("the root is %v", root.Span)
			}
		})
	}
}

func TestTracer_FailedNodeIsTheOneWithTheError(t *testing.T) {
	faults := []model.Fault{
		{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 10 * time.Minute},
		{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1},
	}
	given := harness.Setup{
		Options: model.Options{ControlPlanes: 3, Workers: 5, Seed: 51, Faults: faults}, Judging: []checker.Option{checker.MaxUnavailable(2)},
	}

	told := tell(t, given, twoAtATime(t, harness.To(harness.ToLifecycle)), 0)
	root := told.traced(t, overHTTP(t))

	if root.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || !strings.Contains(root.GetStatus().GetMessage(), "worker-0") {
		t.Errorf("the root says %v", root.GetStatus())
	}

	failed := map[string]string{}

	for _, lane := range root.below {
		if lane.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			failed[lane.GetName()] = lane.below[len(lane.below)-1].GetName() + " " + lane.below[len(lane.below)-1].GetStatus().GetCode().String()
		}
	}

	if want := map[string]string{"Talos on worker-0": "install STATUS_CODE_ERROR"}; !cmp.Equal(want, failed) {
		t.Errorf("failed: %v\n%s", failed, root.picture())
	}
}

func TestTracer_RefusedRunIsARootWithAnError(t *testing.T) {
	told := tell(t, harness.Setup{}, harness.To("1.13.0"), 0)
	root := told.traced(t, overHTTP(t))

	if told.err == nil || len(root.below) > 0 || root.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || root.GetStatus().GetMessage() == "" {
		t.Errorf("got %s of a run that ended with %v", root.picture(), told.err)
	}

	if events := root.GetEvents(); len(events) != 1 || !strings.Contains(words(events[0].GetAttributes())["exception.message"], "1.13.0") {
		t.Errorf("the root does not say why: %v", events)
	}
}

func TestTracer_RunBelongsBelowThePipeline(t *testing.T) {
	t.Setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	t.Setenv("TRACESTATE", "vendor=value")

	root := tell(t, harness.Setup{}, harness.To(harness.FromLifecycle), 0).traced(t, overHTTP(t))

	if trace, parent := fmt.Sprintf("%x", root.GetTraceId()), fmt.Sprintf("%x", root.GetParentSpanId()); trace != "0af7651916cd43dd8448eb211c80319c" || parent != "b7ad6b7169203331" {
		t.Errorf("the root is in trace %s below %s", trace, parent)
	}

	if root.GetTraceState() != "vendor=value" {
		t.Errorf("the state of the trace is %q", root.GetTraceState())
	}
}

func TestTracer_UnsampledPipelineIsNotTracedFurther(t *testing.T) {
	t.Setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")

	to := overHTTP(t)
	tracer := story{begun: time.Unix(1, 0), end: time.Unix(2, 0)}.start(t, aRun())

	if err := tracer.Close(bounded(t), outcomeNone()); err != nil || len(to.got()) > 0 {
		t.Errorf("got %d spans and %v", len(to.got()), err)
	}
}

func TestTracer_WaitsAreBounded(t *testing.T) {
	const waits = 1000

	told := story{begun: time.Unix(1000, 0), end: time.Unix(100000, 0)}
	add := func(event cluster.Event) {
		event.Time = told.begun.Add(time.Duration(len(told.events)) * time.Second)
		told.events = append(told.events, event)
	}

	add(cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-0"})
	add(cluster.Event{Kind: cluster.EventNodeStep, Node: "cp-0", Step: cluster.StepReturn})

	for index := range waits {
		add(cluster.Event{Kind: cluster.EventWaiting, Node: "cp-0", Text: fmt.Sprintf("cp-0 to come back: seen %d times %s", index/2, strings.Repeat("ø", 5000))})
	}

	add(cluster.Event{Kind: cluster.EventNodeDone, Node: "cp-0"})

	step := told.traced(t, overHTTP(t)).below[0].below[0]

	events := step.GetEvents()
	if len(events) != 17 || step.GetDroppedEventsCount() > 0 || words(step.GetAttributes())["talosupgrade.waiting.count"] != `int_value:1000` {
		t.Fatalf("%d events, %v", len(events), words(step.GetAttributes()))
	}

	last := words(events[16].GetAttributes())["talosupgrade.message"]
	if !strings.HasPrefix(last, "cp-0 to come back: seen 499 times") || len(last) > 1024 {
		t.Errorf("the last one says %q", last)
	}
}

// TestTracer_AnyHistoryBecomesATree draws clusters, faults and cancellations.
func TestTracer_AnyHistoryBecomesATree(t *testing.T) {
	const stories = 40

	random := rand.New(rand.NewPCG(41, 43))
	faults := []model.Fault{
		{Step: model.StepInstall, Effect: model.EffectFail},
		{Step: model.StepBoot, Effect: model.EffectFallback},
		{Step: model.StepBoot, Effect: model.EffectNeverReturns, For: 10 * time.Minute},
		{Step: model.StepPull, Effect: model.EffectNotFound},
		{Step: model.StepObserve, Effect: model.EffectUnreachable, For: 3 * time.Minute},
	}

	ends := map[string]int{}

	for number := range stories {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			given := harness.Setup{Options: model.Options{ControlPlanes: 1 + 2*random.IntN(3), Workers: random.IntN(5), Seed: random.Uint64()}}
			given.Judging = []checker.Option{checker.MaxUnavailable(2)}
			request := harness.To(harness.ToLifecycle)

			if random.IntN(2) == 0 {
				request = both()
			}

			if given.Workers > 2 {
				request = twoAtATime(t, request)
			}

			if random.IntN(3) == 0 {
				request.Snapshots = ports.NewVault()
			}

			if random.IntN(3) == 0 {
				request.Policy.OnFailure = cluster.RollBackOnFailure
			}

			if random.IntN(2) == 0 {
				fault := faults[random.IntN(len(faults))]
				fault.Times, fault.Node = 1, "cp-0"

				if given.Workers > 0 {
					fault.Node = fmt.Sprintf("worker-%d", random.IntN(given.Workers))
				}

				given.Faults = []model.Fault{fault}
			}

			var after time.Duration
			if random.IntN(3) == 0 {
				after = time.Duration(random.Int64N(int64(10 * time.Minute)))
			}

			told := tell(t, given, request, after)
			told.traced(t, overHTTP(t))

			ends[told.outcome().Summary]++
		})
	}

	if ends[""] == 0 || len(ends) < 4 {
		t.Errorf("the stories are too much alike: %v", ends)
	}
}

// TestTracer_DelegatedRunIsTraced: an operator acts, and says what it does.
func TestTracer_DelegatedRunIsTraced(t *testing.T) {
	var told story

	synctest.Test(t, func(t *testing.T) {
		r := harness.New(t, harness.Setup{Judging: []checker.Option{checker.Delegated()}})
		defer r.Stop()

		api, err := played.NewMemory(r.World())
		if err != nil {
			t.Fatal(err)
		}

		of, err := played.SeedVitistack(t.Context(), api, r.World(), played.Seed{Namespace: "tenant-a", Name: "prod", ClusterID: "c-1"})
		if err != nil {
			t.Fatal(err)
		}

		defer played.PlayVitistack(context.WithoutCancel(t.Context()), played.Options{World: r.World(), Objects: api, Namespace: "tenant-a", Name: "prod"})()

		w := r.WorkerBeside(cluster.RunPrefix+"1", operator.New(of, api))
		told.begun = time.Now()
		_, told.err = w.Delegate(t.Context(), harness.To(harness.ToLifecycle))
		told.end, told.events = time.Now(), w.Events()
	})

	run := aRun()
	run.Delegated = true
	root := told.tracedAs(t, run, overHTTP(t))

	if told.err != nil || words(root.GetAttributes())["talosupgrade.mode"] != "delegate" || root.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_OK {
		t.Errorf("got %v of a run that ended with %v", root.Span, told.err)
	}

	if !strings.Contains(root.picture(), "asked KubernetesCluster tenant-a/prod for Talos "+harness.ToLifecycle) {
		t.Errorf("the trace does not say what the operator was asked for:\n%s", root.picture())
	}
}
