// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	stdcmp "cmp"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	hold = "upgrade.vitistack.io/do-not-reconcile"
	run  = "talosupgrade-0123"
)

// lost returns a reply that never came.
func lost() error { return errors.Join(cluster.ErrOutcomeUnknown, cluster.ErrUnreachable) }

func TestAnnotated_ReportIsWhatTheAnnotationsSay(t *testing.T) {
	t.Parallel()

	of := prod()
	undo := "By hand: kubectl annotate kubernetescluster.vitistack.io prod --namespace tenant-a upgrade.vitistack.io/"
	unhold := "The hold is the annotation upgrade.vitistack.io/do-not-reconcile. " + undo + "do-not-reconcile-"

	for name, test := range map[string]struct {
		annotations map[string]string
		deleted     bool
		want        cluster.OperatorReport
	}{
		"nothing": {},
		"at work, with v": {
			annotations: map[string]string{
				"talos-target": "v1.13.4", "talos-current": "v1.12.6", "talos-status": "in-progress", "talos-message": "Upgrading node cp-0 (1/5)", "talos-progress": "1/5",
			},
			want: cluster.OperatorReport{Talos: cluster.OperatorProduct{
				Target: "1.13.4", Current: "1.12.6", Status: protocol.StatusInProgress, Message: "Upgrading node cp-0 (1/5)", Progress: "1/5", Undo: undo + "talos-target-",
			}},
		},
		"stale, without v": {
			annotations: map[string]string{"kubernetes-current": "1.35.2", "kubernetes-status": "completed", "talos-status": "idle", "talos-available": "1.13.4"},
			want: cluster.OperatorReport{
				Talos:      cluster.OperatorProduct{Status: protocol.StatusIdle},
				Kubernetes: cluster.OperatorProduct{Current: "1.35.2", Status: protocol.StatusCompleted},
			},
		},
		"words of its own": {
			annotations: map[string]string{"kubernetes-target": "latest", "kubernetes-status": "In-Progress"},
			want:        cluster.OperatorReport{Kubernetes: cluster.OperatorProduct{Target: "latest", Status: "In-Progress", Undo: undo + "kubernetes-target-"}},
		},
		"failed": {
			annotations: map[string]string{"talos-status": "failed", "failed-nodes": "cp-1, worker-2,,"},
			want:        cluster.OperatorReport{Talos: cluster.OperatorProduct{Status: protocol.StatusFailed}, FailedNodes: []string{"cp-1", "worker-2"}},
		},
		"held by a run": {
			annotations: map[string]string{"do-not-reconcile": run, "talosupgrade-last-update": "2026-11-22T03:04:05Z"},
			want:        cluster.OperatorReport{Hold: run, Updated: time.Date(2026, 11, 22, 3, 4, 5, 0, time.UTC)},
		},
		"at work without being asked": {
			annotations: map[string]string{"talos-status": "in-progress", "do-not-reconcile": "maintenance"},
			want: cluster.OperatorReport{Hold: "maintenance", Talos: cluster.OperatorProduct{
				Status: protocol.StatusInProgress, Undo: undo + "talos-status-",
			}},
		},
		"left at work by a run": {
			annotations: map[string]string{"kubernetes-status": "in-progress", "talos-status": "rolling-back", "do-not-reconcile": run},
			want: cluster.OperatorReport{
				Hold: run,
				Unhold: "The hold is the annotation upgrade.vitistack.io/do-not-reconcile, and upgrade.vitistack.io/talos-status goes with it, and upgrade.vitistack.io/kubernetes-status goes with it. " +
					undo + "do-not-reconcile- upgrade.vitistack.io/talos-status- upgrade.vitistack.io/kubernetes-status-",
				Talos:      cluster.OperatorProduct{Status: protocol.StatusRollingBack, Undo: undo + "talos-status-"},
				Kubernetes: cluster.OperatorProduct{Status: protocol.StatusInProgress, Undo: undo + "kubernetes-status-"},
			},
		},
		"held by a key without a value": {
			annotations: map[string]string{"do-not-reconcile": "", "talosupgrade-last-update": "yesterday"},
			want:        cluster.OperatorReport{Hold: "(empty)"},
		},
		"a message as long as it may be": {
			annotations: map[string]string{"talos-message": strings.Repeat("→", 80000)},
			want:        cluster.OperatorReport{Talos: cluster.OperatorProduct{Message: strings.Repeat("→", 166) + "…"}},
		},
		"deleted": {deleted: true, want: cluster.OperatorReport{Deleting: true}},
	} {
		object := annotated(of, test.annotations)
		if test.deleted {
			dig(object, "metadata")["deletionTimestamp"] = "2026-11-22T03:04:05Z"
		}

		// How to end a hold is shown even if none stands yet.
		test.want.Unhold = stdcmp.Or(test.want.Unhold, unhold)

		got, err := operator.New(of, newStore(t, object)).Report(t.Context())
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}

		if got.Kubernetes.Status.Busy() != test.want.Kubernetes.Status.Busy() {
			t.Errorf("%s: %q is taken for an operator at work", name, got.Kubernetes.Status)
		}
	}
}

func TestAnnotated_MissingObjectIsNotFound(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"ConfigMap", "KubernetesCluster", "TalosControlPlane"} {
		of := cluster.Reference{Kind: kind, Namespace: "tenant-a", Name: "prod"}

		if _, err := operator.New(of, newStore(t)).Report(t.Context()); !errors.Is(err, cluster.ErrNotFound) || !strings.Contains(err.Error(), of.String()) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestAnnotated_NothingIsWrittenWhereNoOperatorActs(t *testing.T) {
	t.Parallel()

	of := cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "talosupgrade"}
	api := newStore(t, annotated(of, map[string]string{"talos-status": "in-progress", "talos-target": "1.13.4", "do-not-reconcile": run}))
	plain := operator.New(of, api)

	if err := errors.Join(plain.Hold(t.Context(), run, ""), plain.Settle(t.Context(), parsed("1.13.4"), parsed("1.35.2")), plain.Release(t.Context(), run)); err != nil {
		t.Error(err)
	}

	if len(api.requests) != 0 {
		t.Errorf("it was asked for %q", api.requests)
	}

	if report, err := plain.Report(t.Context()); err != nil || !report.Passive || report.Hold != "" || report.Talos.Status != protocol.StatusInProgress {
		t.Errorf("%+v, %v; want it passive and not held", report, err)
	}
}

func TestAnnotated_OnlyKnownOperatorsAreAsked(t *testing.T) {
	t.Parallel()

	for _, apiVersion := range []string{"v1", "example.org/v1"} {
		of := cluster.Reference{APIVersion: apiVersion, Kind: "Thing", Namespace: "tenant-a", Name: "prod"}
		api := newStore(t, annotated(of, nil))
		asked := operator.New(of, api)

		for _, err := range []error{asked.Ask(t.Context(), version.Talos, parsed("1.13.4")), asked.Withdraw(t.Context(), version.Talos, parsed("1.13.4"))} {
			if !errors.Is(err, cluster.ErrUnsupported) || !strings.Contains(err.Error(), "KubernetesCluster") {
				t.Errorf("%s: %v", apiVersion, err)
			}
		}

		if len(api.requests) != 0 {
			t.Errorf("%s: %q", apiVersion, api.requests)
		}
	}
}

func TestHold_IsSetInPlaceOfTheExpectedOne(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		standing    map[string]string
		instead     string
		want        string
		conflict    bool
		mostChanges int
	}{
		"nothing stands":                {nil, "", run, false, 1},
		"that of a dead run":            {map[string]string{"do-not-reconcile": "talosupgrade-dead"}, "talosupgrade-dead", run, false, 1},
		"our own stands":                {map[string]string{"do-not-reconcile": run}, "", run, false, 0},
		"somebody's stands":             {map[string]string{"do-not-reconcile": "maintenance"}, "", "maintenance", true, 0},
		"another run's than that died":  {map[string]string{"do-not-reconcile": "talosupgrade-new"}, "talosupgrade-dead", "talosupgrade-new", true, 0},
		"somebody's without a value":    {map[string]string{"do-not-reconcile": ""}, "", "", true, 0},
		"what was to be replaced, gone": {nil, "talosupgrade-dead", "", true, 0},
	} {
		of := cluster.Reference{APIVersion: "example.org/v1", Kind: "Thing", Namespace: "tenant-a", Name: "prod"}
		api := newStore(t, annotated(of, test.standing))

		err := operator.New(of, api).Hold(t.Context(), run, test.instead)
		if errors.Is(err, cluster.ErrConflict) != test.conflict || !test.conflict && err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if test.conflict && (!strings.Contains(err.Error(), `"`+test.want) || !strings.Contains(err.Error(), hold)) && name != "somebody's without a value" {
			t.Errorf("%s: the error does not name what stands: %v", name, err)
		}

		if got, _ := api.annotation(of, hold); got != test.want || len(api.changes()) != test.mostChanges {
			t.Errorf("%s: %q stands after %q", name, got, api.changes())
		}
	}
}

func TestHold_SurvivesOthersThatWriteTheObject(t *testing.T) {
	t.Parallel()

	of := prod()
	api := newStore(t, annotated(of, nil))
	writes := 0
	api.before = once("patch", 4, func() error {
		writes++
		api.annotate(of, "upgrade.vitistack.io/talos-message", strings.Repeat("x", writes))

		return nil
	})

	if err := operator.New(of, api).Hold(t.Context(), run, ""); err != nil {
		t.Error(err)
	}

	message, _ := api.annotation(of, "upgrade.vitistack.io/talos-message")
	if got, _ := api.annotation(of, hold); got != run || message != "xxxx" {
		t.Errorf("%q holds, the message is %q", got, message)
	}
}

func TestHold_GivesUpAgainstAWriterThatNeverStops(t *testing.T) {
	t.Parallel()

	of := prod()
	api := newStore(t, annotated(of, nil))
	api.before = once("patch", 100, func() error {
		api.annotate(of, "someone", "else")

		return nil
	})

	if err := operator.New(of, api).Hold(t.Context(), run, ""); !errors.Is(err, cluster.ErrConflict) || len(api.changes()) != 5 {
		t.Errorf("%v after %d attempts", err, len(api.changes()))
	}
}

func TestHold_ThatSomebodyElseSetMeanwhileIsLeft(t *testing.T) {
	t.Parallel()

	of := prod()
	api := newStore(t, annotated(of, nil))
	api.before = once("patch", 1, func() error {
		api.annotate(of, hold, "maintenance")

		return nil
	})

	err := operator.New(of, api).Hold(t.Context(), run, "")
	if got, _ := api.annotation(of, hold); got != "maintenance" || !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), `"maintenance"`) {
		t.Errorf("%q stands: %v", got, err)
	}
}

func TestAnnotated_ObjectIsReadAgainAfterALostReply(t *testing.T) {
	t.Parallel()

	of := prod()

	for name, arrange := range map[string]func(*store){
		"that was carried out":     func(s *store) { s.after = once("patch", 1, lost) },
		"that was not carried out": func(s *store) { s.before = once("patch", 1, lost) },
	} {
		api := newStore(t, annotated(of, nil))
		arrange(api)

		if err := operator.New(of, api).Hold(t.Context(), run, ""); err != nil {
			t.Errorf("a hold %s: %v", name, err)
		}

		if got, _ := api.annotation(of, hold); got != run {
			t.Errorf("a hold %s: %q stands", name, got)
		}

		arrange(api)

		if err := operator.New(of, api).Release(t.Context(), run); err != nil {
			t.Errorf("a release %s: %v", name, err)
		}

		if got, stands := api.annotation(of, hold); stands {
			t.Errorf("a release %s: %q stands", name, got)
		}
	}
}

func TestAnnotated_ChangeThatCannotBeReadBackIsUnknown(t *testing.T) {
	t.Parallel()

	of := prod()
	api := newStore(t, annotated(of, nil))
	api.after = func(request string) error {
		if !strings.HasPrefix(request, "patch") {
			return nil
		}

		api.before = func(string) error { return cluster.ErrUnreachable }

		return lost()
	}

	if err := operator.New(of, api).Hold(t.Context(), run, ""); !errors.Is(err, cluster.ErrOutcomeUnknown) || !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("%v, want the outcome unknown", err)
	}
}

func TestAnnotated_DeniedWriteIsTriedOnce(t *testing.T) {
	t.Parallel()

	of := prod()
	api := newStore(t, annotated(of, map[string]string{"do-not-reconcile": run}))
	api.before = once("patch", 9, func() error { return cluster.ErrDenied })

	if err := operator.New(of, api).Release(t.Context(), run); !errors.Is(err, cluster.ErrDenied) || len(api.changes()) != 1 {
		t.Errorf("%v after %q", err, api.changes())
	}
}

func TestHold_OnlyThatOfTheRunIsReleased(t *testing.T) {
	t.Parallel()

	of := prod()

	for name, test := range map[string]struct {
		standing map[string]string
		left     bool
	}{
		"its own":        {map[string]string{"do-not-reconcile": run}, false},
		"none":           {nil, false},
		"another run's":  {map[string]string{"do-not-reconcile": "talosupgrade-new"}, true},
		"somebody's":     {map[string]string{"do-not-reconcile": "maintenance"}, true},
		"one of nobody":  {map[string]string{"do-not-reconcile": ""}, true},
		"a similar one":  {map[string]string{"do-not-reconcile": run + "4"}, true},
		"other keys too": {map[string]string{"do-not-reconcile": run, "talos-status": "failed"}, false},
	} {
		api := newStore(t, annotated(of, test.standing))
		if err := operator.New(of, api).Release(t.Context(), run); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		_, stands := api.annotation(of, hold)
		status, _ := api.annotation(of, "upgrade.vitistack.io/talos-status")

		if stands != test.left || status != test.standing["talos-status"] {
			t.Errorf("%s: left %t, status %q", name, stands, status)
		}
	}

	if err := operator.New(of, newStore(t)).Release(t.Context(), run); err != nil {
		t.Errorf("of an object that is gone: %v", err)
	}
}

func TestHold_WorksForAnyOperatorOfTheProtocol(t *testing.T) {
	t.Parallel()

	of := cluster.Reference{APIVersion: "example.org/v1", Kind: "Cluster", Name: "prod"}
	api := newStore(t)
	object := annotated(of, map[string]string{"talos-status": "in-progress", "do-not-reconcile": run})
	api.objects[of.String()] = object
	dig(object, "metadata")["resourceVersion"] = api.next()

	thing := operator.New(of, api)

	report, err := thing.Report(t.Context())
	if err != nil || report.Passive || report.Hold != run || !report.Talos.Status.Busy() ||
		!strings.HasSuffix(report.Unhold, ": kubectl annotate cluster.example.org prod upgrade.vitistack.io/do-not-reconcile- upgrade.vitistack.io/talos-status-") {
		t.Errorf("%+v, %v", report, err)
	}

	if err := errors.Join(thing.Settle(t.Context(), parsed("1.13.4"), parsed("1.35.2")), thing.Release(t.Context(), run)); err != nil || len(api.changes()) != 1 {
		t.Errorf("%v after %q", err, api.changes())
	}

	if thing.String() != "Cluster prod" {
		t.Errorf("it is called %q", thing)
	}
}

// TestAnnotated_StatusThatARunLeftIsNoWork: the run died, somebody ended its hold, and the operator is idle
// according to its own Secret. Anything less certain counts as work.
func TestAnnotated_StatusThatARunLeftIsNoWork(t *testing.T) {
	t.Parallel()

	const beat = "2026-11-22T03:04:05Z"

	for name, test := range map[string]struct {
		annotations, secret map[string]string
		busy                bool
	}{
		"by a run":             {map[string]string{"talosupgrade-last-update": beat}, nil, false},
		"by nobody of ours":    {nil, nil, true},
		"with a target":        {map[string]string{"talosupgrade-last-update": beat, "talos-target": "1.13.4"}, nil, true},
		"and the operator too": {map[string]string{"talosupgrade-last-update": beat}, atWork("talos", "1.13.4", ""), true},
		"the other half":       {map[string]string{"talosupgrade-last-update": beat}, atWork("kubernetes", "1.35.2", ""), true},
	} {
		said := map[string]string{"talos-status": "in-progress", "talos-current": "1.12.6"}
		maps.Copy(said, test.annotations)

		report, err := operator.New(prod(), vitistack(t, said, test.secret)).Report(t.Context())
		if err != nil || report.Talos.Status.Busy() != test.busy {
			t.Errorf("%s: %v %+v", name, err, report.Talos)
		}
	}
}
