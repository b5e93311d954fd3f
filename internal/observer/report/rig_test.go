// SPDX-License-Identifier: MPL-2.0

package report_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// scene is a run on a simulated cluster, of which there is a report.
type scene struct {
	setup   harness.Setup
	faults  []model.Fault
	request func() engine.Request
	// until stops the run, as if it was killed, when the event comes; nil lets it
	// come to its end.
	until func(cluster.Event) bool
}

const manyWorkers = 57

// scenes are by the name of what they show.
func scenes() map[string]scene {
	legacy := harness.Setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Talos: harness.FromLegacy}}

	two, err := cluster.ParseShare("2")
	if err != nil {
		panic(err)
	}

	parallel := func() engine.Request {
		request := harness.To(harness.ToLegacy)
		request.Policy.MaxUnavailable = two

		return request
	}

	both := func() engine.Request {
		request := harness.To(harness.ToLifecycle)
		request.Target.Kubernetes = version.MustParse("1.35.2")

		return request
	}

	return map[string]scene{
		"completed": {request: both},
		"failed": {
			setup: legacy, request: parallel,
			faults: []model.Fault{{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns}},
		},
		"fallback": {
			request: func() engine.Request { return harness.To(harness.ToLifecycle) },
			faults:  []model.Fault{{Node: "cp-1", Step: model.StepBoot, Effect: model.EffectFallback}},
		},
		"refused": {
			request: func() engine.Request { return harness.To(harness.ToLifecycle) },
			faults: []model.Fault{
				{Node: "cp-2", Step: model.StepEtcd, Effect: model.EffectAlarmNoSpace},
				{Node: "worker-0", Step: model.StepKubelet, Effect: model.EffectNotReady},
			},
		},
		"running": {
			setup: legacy, request: parallel,
			until: func(event cluster.Event) bool {
				return event.Kind == cluster.EventNodeStep && event.Node == "worker-2" && event.Step == cluster.StepReady
			},
		},
		"many": {
			setup:   harness.Setup{Options: model.Options{ControlPlanes: 3, Workers: manyWorkers}},
			request: func() engine.Request { return harness.To(harness.ToLifecycle) },
			faults:  []model.Fault{{Node: "worker-40", Step: model.StepInstall, Effect: model.EffectFail}},
		},
	}
}

// play runs the scene and writes its report into the directory.
func (s scene) play(t *testing.T, directory, name string) (path string) {
	t.Helper()

	path = filepath.Join(directory, name+".html")

	harness.Run(t, s.setup, func(r *harness.Rig) {
		r.World().SetFaults(s.faults)

		ctx, kill := context.WithCancel(context.Background())
		defer kill()

		var left string

		drawn := report.New(report.Options{Path: path, Cluster: "prod (https://192.0.2.10:6443)", Run: "talosupgrade-run-1", Version: "0.1.0"})
		watching := &killer{Report: drawn, at: s.until, kill: func() {
			// Until it is written again, which nothing else happens beside.
			time.Sleep(2 * time.Second)
			synctest.Wait()

			left = read(t, path)

			kill()
		}}

		observed, err := r.WorkerBeside("run-1", nil, watching).Upgrade(ctx, s.request())

		if err := drawn.Close(context.Background(), ending(observed, err)); err != nil {
			t.Error(err)
		}

		if s.until != nil {
			// As a run leaves it that was killed.
			if err := os.WriteFile(path, []byte(left), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})

	return path
}

// killer passes events on until the run is killed.
type killer struct {
	*report.Report

	at   func(cluster.Event) bool
	kill context.CancelFunc
	cut  bool
}

// Observe implements [cluster.Observer].
func (k *killer) Observe(event cluster.Event) {
	if k.cut {
		return
	}

	k.Report.Observe(event)

	if k.at != nil && k.at(event) {
		k.cut = true
		k.kill()
	}
}

// ending is what the provider says of the end of a run.
func ending(observed cluster.Observation, err error) report.Ending {
	made := report.Ending{Outcome: report.Completed, Nodes: observed.Nodes}

	var failure *say.Failure
	if !errors.As(err, &failure) {
		return made
	}

	made.Outcome = report.Failed
	if errors.Is(err, say.ErrBlocked) {
		made.Outcome = report.Refused
	}

	made.Failure = &report.Failure{
		Summary: failure.Summary, Nodes: failure.Nodes(), Seen: failure.Seen, Findings: failure.Findings, State: failure.State, Remedy: failure.Remedy,
	}

	for _, excerpt := range failure.Excerpts {
		made.Failure.Excerpts = append(made.Failure.Excerpts, report.Excerpt(excerpt))
	}

	return made
}

func read(t *testing.T, path string) string {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}
