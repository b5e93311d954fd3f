// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	talosTarget = "upgrade.vitistack.io/talos-target"
	secretKey   = "tenant-a/talos-prod-x1"
)

func marked() labels.Set { return labels.Set{"cluster.vitistack.io/cluster-id": "prod-x1"} }

// vitistack returns a KubernetesCluster with the Secret of its operator.
func vitistack(t *testing.T, annotations, secret map[string]string) *store {
	t.Helper()

	api := newStore(t, annotated(prod(), annotations))
	data := map[string]string{"talosconfig": "not for messages", "talos_version": "v1.12.6", "kubernetes_version": "1.34.2"}
	maps.Copy(data, secret)
	api.keep("tenant-a", "talos-prod-x1", marked(), data)
	api.keep("tenant-a", "of-another-cluster", labels.Set{"cluster.vitistack.io/cluster-id": "prod-x2"}, data)
	api.keep("tenant-b", "talos-prod-x1", marked(), data)

	return api
}

func TestVitistack_IsAskedInItsOwnAnnotations(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		standing map[string]string
		half     version.Product
		to       string
		want     map[string]string
		fails    error
	}{
		"for Talos":                  {nil, version.Talos, "v1.13.4", map[string]string{"talos-target": "1.13.4"}, nil},
		"for Kubernetes":             {map[string]string{"kubernetes-status": "completed"}, version.Kubernetes, "1.35.2", map[string]string{"kubernetes-target": "1.35.2"}, nil},
		"for what it was asked for":  {map[string]string{"talos-target": "v1.13.4"}, version.Talos, "1.13.4", map[string]string{"talos-target": "v1.13.4"}, nil},
		"beside somebody else":       {map[string]string{"talos-target": "1.13.0"}, version.Talos, "1.13.4", map[string]string{"talos-target": "1.13.0"}, cluster.ErrConflict},
		"beside what is no version":  {map[string]string{"talos-target": "latest"}, version.Talos, "1.13.4", map[string]string{"talos-target": "latest"}, cluster.ErrConflict},
		"in place of an empty value": {map[string]string{"talos-target": ""}, version.Talos, "1.13.4", map[string]string{"talos-target": "1.13.4"}, nil},
	} {
		api := vitistack(t, test.standing, nil)

		if err := operator.New(prod(), api).Ask(t.Context(), test.half, parsed(test.to)); !errors.Is(err, test.fails) {
			t.Errorf("%s: %v", name, err)
		}

		for key, want := range test.want {
			if got, _ := api.annotation(prod(), "upgrade.vitistack.io/"+key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}

	api := vitistack(t, nil, nil)
	if err := operator.New(prod(), api).Ask(t.Context(), version.Talos, version.Version{}); !errors.Is(err, cluster.ErrRefused) || len(api.requests) != 0 {
		t.Errorf("for an unknown version: %v after %q", err, api.requests)
	}
}

func TestVitistack_RequestOfSomebodyElseIsNotOverwritten(t *testing.T) {
	t.Parallel()

	api := vitistack(t, nil, nil)
	api.before = once("patch", 1, func() error {
		api.annotate(prod(), talosTarget, "1.13.0")

		return nil
	})

	err := operator.New(prod(), api).Ask(t.Context(), version.Talos, parsed("1.13.4"))
	if got, _ := api.annotation(prod(), talosTarget); got != "1.13.0" || !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), "1.13.0") {
		t.Errorf("it is asked for %q: %v", got, err)
	}
}

func TestVitistack_OnlyOurOwnTargetIsWithdrawn(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		standing map[string]string
		left     string
	}{
		"ours":           {map[string]string{"talos-target": "1.13.4"}, ""},
		"ours with v":    {map[string]string{"talos-target": "v1.13.4"}, ""},
		"none":           {nil, ""},
		"somebody's":     {map[string]string{"talos-target": "1.13.5"}, "1.13.5"},
		"no version":     {map[string]string{"talos-target": "latest"}, "latest"},
		"the other half": {map[string]string{"kubernetes-target": "1.13.4"}, ""},
	} {
		api := vitistack(t, test.standing, nil)
		if err := operator.New(prod(), api).Withdraw(t.Context(), version.Talos, parsed("1.13.4")); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		other, _ := api.annotation(prod(), "upgrade.vitistack.io/kubernetes-target")
		if got, _ := api.annotation(prod(), talosTarget); got != test.left || other != test.standing["kubernetes-target"] {
			t.Errorf("%s: %q and %q stand", name, got, other)
		}
	}

	if err := operator.New(prod(), newStore(t)).Withdraw(t.Context(), version.Talos, parsed("1.13.4")); err != nil {
		t.Errorf("from an object that is gone: %v", err)
	}
}

// TestVitistack_TargetThatChangesMeanwhileIsLeft is about the race when a target is taken back.
func TestVitistack_TargetThatChangesMeanwhileIsLeft(t *testing.T) {
	t.Parallel()

	api := vitistack(t, map[string]string{"talos-target": "1.13.4"}, nil)
	api.before = once("patch", 1, func() error {
		api.annotate(prod(), talosTarget, "1.13.5")

		return nil
	})

	err := operator.New(prod(), api).Withdraw(t.Context(), version.Talos, parsed("1.13.4"))
	if got, _ := api.annotation(prod(), talosTarget); got != "1.13.5" || err != nil {
		t.Errorf("it is asked for %q: %v", got, err)
	}
}

func TestVitistack_SecretIsBroughtUpToDate(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		standing            map[string]string
		talos, kubernetes   version.Version
		wantTalos, wantKube string
		changes             int
	}{
		"both, each as it is spelled": {nil, parsed("1.13.4"), parsed("v1.35.2"), "v1.13.4", "1.35.2", 1},
		"one that is not known":       {nil, parsed("1.13.4"), version.Version{}, "v1.13.4", "1.34.2", 1},
		"none":                        {nil, version.Version{}, version.Version{}, "v1.12.6", "1.34.2", 0},
		"what it says already":        {nil, parsed("1.12.6"), parsed("1.34.2"), "v1.12.6", "1.34.2", 0},
		"where nothing was said":      {map[string]string{"talos_version": "", "kubernetes_version": "?"}, parsed("1.13.4"), parsed("1.35.2"), "1.13.4", "1.35.2", 1},
	} {
		api := vitistack(t, nil, test.standing)
		if err := operator.New(prod(), api).Settle(t.Context(), test.talos, test.kubernetes); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		data := api.secrets[secretKey].Data
		if string(data["talos_version"]) != test.wantTalos || string(data["kubernetes_version"]) != test.wantKube || len(api.changes()) != test.changes {
			t.Errorf("%s: %s and %s after %q", name, data["talos_version"], data["kubernetes_version"], api.changes())
		}

		if string(data["talosconfig"]) != "not for messages" || string(api.secrets["tenant-b/talos-prod-x1"].Data["talos_version"]) == "v1.13.4" {
			t.Errorf("%s: something else was changed", name)
		}
	}
}

func TestVitistack_SecretIsChangedBesideTheOperatorsWrites(t *testing.T) {
	t.Parallel()

	for name, arrange := range map[string]func(*store){
		"that writes it": func(api *store) {
			api.before = once("patch Secret", 3, func() error {
				secret := api.secrets[secretKey]
				secret.Data["health_check_at"], secret.ResourceVersion = []byte("now"), api.next()
				api.secrets[secretKey] = secret

				return nil
			})
		},
		"over replies that are lost": func(api *store) { api.after = once("patch Secret", 1, lost) },
	} {
		api := vitistack(t, nil, nil)
		arrange(api)

		if err := operator.New(prod(), api).Settle(t.Context(), parsed("1.13.4"), parsed("1.35.2")); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if data := api.secrets[secretKey].Data; string(data["talos_version"]) != "v1.13.4" || string(data["kubernetes_version"]) != "1.35.2" {
			t.Errorf("%s: %s and %s", name, data["talos_version"], data["kubernetes_version"])
		}
	}
}

func TestVitistack_UnchangeableSecretIsNamedWithoutContent(t *testing.T) {
	t.Parallel()

	of := prod()

	for name, test := range map[string]struct {
		arrange func(*store)
		want    error
		words   string
	}{
		"it may not be changed": {func(s *store) {
			s.before = once("patch", 1, func() error { return cluster.ErrDenied })
		}, cluster.ErrDenied, "kubernetes_version and talos_version"},
		"it is not there":       {func(s *store) { clear(s.secrets) }, cluster.ErrNotFound, "cluster.vitistack.io/cluster-id=prod-x1"},
		"the cluster has no ID": {func(s *store) { delete(s.objects[of.String()], "spec") }, cluster.ErrNotFound, "spec.data.clusterId is empty"},
		"the ID is a selector":  {func(s *store) { dig(dig(s.objects[of.String()], "spec"), "data")["clusterId"] = "a,b in (c)" }, cluster.ErrNotFound, "no value of a label"},
		"there are two": {func(s *store) {
			s.keep("tenant-a", "copy", marked(), map[string]string{"talosconfig": "not for messages"})
		}, cluster.ErrRefused, "Secret tenant-a/copy and Secret tenant-a/talos-prod-x1"},
		"it may be neither found": {func(s *store) { s.before = once("list", 1, func() error { return cluster.ErrDenied }) }, cluster.ErrDenied, "talos_version"},
		"it is always written": {func(s *store) {
			s.before = once("patch", 9, func() error { return cluster.ErrConflict })
		}, cluster.ErrConflict, "5 attempts"},
	} {
		api := vitistack(t, nil, nil)
		test.arrange(api)

		err := operator.New(of, api).Settle(t.Context(), parsed("1.13.4"), parsed("1.35.2"))
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) || !strings.Contains(err.Error(), of.String()) || strings.Contains(err.Error(), "not for messages") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVitistack_SecretIsAlsoFoundByItsName(t *testing.T) {
	t.Parallel()

	for name, listed := range map[string]error{"without a label": nil, "without the right to list": cluster.ErrDenied} {
		api := newStore(t, annotated(prod(), nil))
		api.keep("tenant-a", "prod-x1", nil, map[string]string{"talos_version": ""})
		api.keep("tenant-a", "of-another-tool", marked(), map[string]string{"password": "not for messages"})
		api.before = once("list", 1, func() error { return listed })

		if err := operator.New(prod(), api).Settle(t.Context(), parsed("1.13.4"), version.Version{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if got := string(api.secrets["tenant-a/prod-x1"].Data["talos_version"]); got != "1.13.4" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestVitistack_UpgradeThatOnlyTheSecretKnowsIsReported(t *testing.T) {
	t.Parallel()

	busy := map[string]string{"upgrade_in_progress": "true", "upgrade_type": "talos", "upgrade_target": "v1.13.4"}

	for name, test := range map[string]struct {
		annotations, secret map[string]string
		status              protocol.Status
		target, words       string
	}{
		"and the annotations say idle":        {map[string]string{"talos-status": "idle"}, busy, protocol.StatusInProgress, "1.13.4", "talos-reset-upgrade-state=true"},
		"and somebody removed the status":     {nil, busy, protocol.StatusInProgress, "1.13.4", "upgrade_in_progress of Secret tenant-a/talos-prod-x1"},
		"and the same target stands":          {map[string]string{"talos-target": "1.13.4"}, busy, protocol.StatusInProgress, "1.13.4", "talos-reset-upgrade-state=true"},
		"and another target stands":           {map[string]string{"talos-target": "1.13.5"}, busy, protocol.StatusInProgress, "1.13.5", "talos-target-"},
		"which ended by the annotations":      {map[string]string{"talos-status": "completed"}, busy, protocol.StatusCompleted, "", ""},
		"while an earlier one is completed":   {map[string]string{"talos-status": "completed", "talos-target": "1.13.4"}, busy, protocol.StatusInProgress, "1.13.4", ""},
		"other than what is asked for now":    {map[string]string{"talos-status": "completed", "talos-target": "1.13.5"}, busy, protocol.StatusCompleted, "1.13.5", ""},
		"which the operator left as it was":   {map[string]string{"talos-status": "failed", "talos-target": "1.13.4"}, busy, protocol.StatusFailed, "1.13.4", ""},
		"as over":                             {nil, map[string]string{"upgrade_in_progress": "false", "upgrade_type": "talos"}, "", "", ""},
		"of nothing known":                    {nil, map[string]string{"upgrade_in_progress": "true", "upgrade_type": "firmware"}, "", "", ""},
		"while a run keeps the operator away": {map[string]string{"do-not-reconcile": run}, busy, "", "", ""},
	} {
		report, err := operator.New(prod(), vitistack(t, test.annotations, test.secret)).Report(t.Context())

		half := report.Talos
		if err != nil || half.Status != test.status || half.Target != test.target || !strings.Contains(half.Message+half.Undo, test.words) {
			t.Errorf("%s: %v %+v", name, err, half)
		}

		if report.Kubernetes.Status != "" {
			t.Errorf("%s: %+v", name, report.Kubernetes)
		}
	}
}

func TestVitistack_UnreadableSecretChangesNoReport(t *testing.T) {
	t.Parallel()

	api := vitistack(t, map[string]string{"talos-status": "idle", "kubernetes-target": "1.35.2"}, map[string]string{"upgrade_in_progress": "true", "upgrade_type": "talos"})
	api.before = func(request string) error {
		if strings.Contains(request, "Secret") {
			return cluster.ErrDenied
		}

		return nil
	}

	report, err := operator.New(prod(), api).Report(t.Context())
	if err != nil || report.Talos.Status != protocol.StatusIdle || report.Kubernetes.Target != "1.35.2" {
		t.Errorf("%+v, %v", report, err)
	}
}

const (
	busyKey  = "upgrade_in_progress"
	stateKey = "upgrade_state"
)

// atWork returns what the Secret says of an operator at work on the half.
func atWork(half, target, state string) map[string]string {
	return map[string]string{busyKey: "true", "upgrade_type": half, "upgrade_target": target, stateKey: state}
}

// TestVitistack_WayBackEndsTheUpgradeInTheSecretToo: the operator goes on with what it has begun, whatever the annotation
// says.
func TestVitistack_WayBackEndsTheUpgradeInTheSecretToo(t *testing.T) {
	t.Parallel()

	const forget = "remove upgrade_state from Secret tenant-a/talos-prod-x1, and set upgrade_in_progress to false"

	for annotation, wanted := range map[string]string{
		"": "By hand: " + forget, "1.35.2": "upgrade.vitistack.io/kubernetes-target-, then " + forget,
	} {
		report, err := operator.New(prod(), vitistack(t, map[string]string{"kubernetes-target": annotation}, atWork("kubernetes", "1.35.2", ""))).Report(t.Context())
		if back := report.Kubernetes.Undo; err != nil || report.Kubernetes.Target != "1.35.2" || !strings.Contains(back, wanted) {
			t.Errorf("asked for %q: %q, %v", annotation, back, err)
		}
	}
}

// TestVitistack_FailedUpgradeIsNotWork: the operator leaves its Secret busy after a failure, whatever the
// annotations say by then.
func TestVitistack_FailedUpgradeIsNotWork(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		annotations, secret map[string]string
		half                version.Product
		busy                bool
	}{
		"a run of ours turned failed into idle": {
			map[string]string{"kubernetes-status": "idle"}, atWork("kubernetes", "1.35.2", `{"upgradeType":"kubernetes","targetVersion":"1.35.2","phase":"failed"}`), version.Kubernetes, false,
		},
		"nothing else is known":     {nil, atWork("talos", "1.13.4", `{"phase":"Failed"}`), version.Talos, false},
		"completed":                 {nil, atWork("talos", "1.13.4", `{"phase":"completed"}`), version.Talos, false},
		"at a node":                 {nil, atWork("talos", "1.13.4", `{"phase":"upgrading-workers"}`), version.Talos, true},
		"an earlier one failed":     {nil, atWork("talos", "1.13.4", `{"targetVersion":"1.13.0","phase":"failed"}`), version.Talos, true},
		"the other half failed":     {nil, atWork("talos", "1.13.4", `{"upgradeType":"kubernetes","phase":"failed"}`), version.Talos, true},
		"no state":                  {nil, atWork("talos", "1.13.4", ""), version.Talos, true},
		"a state of another shape":  {nil, atWork("talos", "1.13.4", `["failed"]`), version.Talos, true},
		"it is there by the object": {map[string]string{"talos-current": "v1.13.4", "talos-status": "idle"}, atWork("talos", "1.13.4", ""), version.Talos, false},
		"it is there by the Secret": {nil, atWork("talos", "1.12.6", ""), version.Talos, false},
		"the other half is there":   {map[string]string{"kubernetes-current": "1.13.4"}, atWork("talos", "1.13.4", ""), version.Talos, true},
	} {
		report, err := operator.New(prod(), vitistack(t, test.annotations, test.secret)).Report(t.Context())
		if half := report.Of(test.half); err != nil || half.Status.Busy() != test.busy || (half.Target != "") != test.busy {
			t.Errorf("%s: %v %+v", name, err, half)
		}
	}
}

// TestVitistack_UpgradeThatARunFinishedIsOver: the operator failed, and a run of ours completed the upgrade.
func TestVitistack_UpgradeThatARunFinishedIsOver(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		hold         string
		half, target string
		talos        version.Version
		want         string
	}{
		"in a run":                  {run, "talos", "v1.13.4", parsed("1.13.4"), "false"},
		"to another version":        {run, "talos", "1.13.6", parsed("1.13.4"), "true"},
		"of the other half":         {run, "kubernetes", "1.13.4", parsed("1.13.4"), "true"},
		"of which nothing is known": {run, "talos", "1.13.4", version.Version{}, "true"},
		"of no half":                {run, "", "1.13.4", parsed("1.13.4"), "true"},
		"and the hold is gone":      {"", "talos", "1.13.4", parsed("1.13.4"), "true"},
		"under somebody's hold":     {"maintenance", "talos", "1.13.4", parsed("1.13.4"), "true"},
	} {
		api := vitistack(t, map[string]string{"do-not-reconcile": test.hold}, atWork(test.half, test.target, ""))
		if err := operator.New(prod(), api).Settle(t.Context(), test.talos, parsed("1.34.2")); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if got := string(api.secrets[secretKey].Data[busyKey]); got != test.want {
			t.Errorf("%s: %s is %q, want %q", name, busyKey, got, test.want)
		}
	}
}

// TestVitistack_ReleaseCutsOffWhatARunLeftAtWork: no operator acts on a target beside it.
func TestVitistack_ReleaseCutsOffWhatARunLeftAtWork(t *testing.T) {
	t.Parallel()

	const message = "The upgrade was cut off"

	for name, test := range map[string]struct {
		standing, secret map[string]string
		want             map[string]string
	}{
		"in a node": {
			map[string]string{"do-not-reconcile": run, "talos-status": "in-progress", "talos-message": "x", "kubernetes-status": "blocked", "kubernetes-message": "y"},
			nil,
			map[string]string{"talos-status": "idle", "talos-message": message, "kubernetes-status": "blocked", "kubernetes-message": "y"},
		},
		"while it took one back": {
			map[string]string{"do-not-reconcile": run, "talos-status": "rolling-back", "kubernetes-status": "in-progress"},
			nil,
			map[string]string{"talos-status": "idle", "talos-message": message, "kubernetes-status": "idle", "kubernetes-message": message},
		},
		"after its last word": {
			map[string]string{"do-not-reconcile": run, "talos-status": "completed", "kubernetes-status": "failed", "kubernetes-message": "y"},
			nil,
			map[string]string{"talos-status": "completed", "kubernetes-status": "failed", "kubernetes-message": "y"},
		},
		"and another holds it": {
			map[string]string{"do-not-reconcile": "talosupgrade-new", "talos-status": "in-progress"},
			nil,
			map[string]string{"do-not-reconcile": "talosupgrade-new", "talos-status": "in-progress"},
		},
		"and the operator is at work": {
			map[string]string{"do-not-reconcile": run, "talos-status": "in-progress", "kubernetes-status": "in-progress"},
			atWork("talos", "1.13.4", `{"phase":"running"}`),
			map[string]string{"talos-status": "in-progress", "kubernetes-status": "idle", "kubernetes-message": message},
		},
		"and the operator failed": {
			map[string]string{"do-not-reconcile": run, "talos-status": "in-progress"},
			atWork("talos", "1.13.4", `{"phase":"failed"}`),
			map[string]string{"talos-status": "idle", "talos-message": message},
		},
	} {
		for _, of := range []cluster.Reference{prod(), {APIVersion: "example.org/v1", Kind: "Thing", Namespace: "tenant-a", Name: "prod"}} {
			if of != prod() && test.secret != nil {
				continue
			}

			api := vitistack(t, test.standing, test.secret)
			api.put(annotated(of, test.standing))

			if err := operator.New(of, api).Release(t.Context(), run); err != nil {
				t.Errorf("%s: %s: %v", of, name, err)
			}

			for _, key := range []string{"do-not-reconcile", "talos-status", "talos-message", "kubernetes-status", "kubernetes-message"} {
				if got, _ := api.annotation(of, "upgrade.vitistack.io/"+key); got != test.want[key] {
					t.Errorf("%s: %s: %s is %q, want %q", of, name, key, got, test.want[key])
				}
			}

			if len(api.changes()) > 1 {
				t.Errorf("%s: %s: it took %q", of, name, api.changes())
			}
		}
	}
}

// TestVitistack_ReleaseCutsOffWithoutReadingTheSecret: a release is worth more.
func TestVitistack_ReleaseCutsOffWithoutReadingTheSecret(t *testing.T) {
	t.Parallel()

	api := vitistack(t, map[string]string{"do-not-reconcile": run, "talos-status": "in-progress"}, atWork("talos", "1.13.4", ""))
	api.before = func(request string) error {
		if strings.Contains(request, "Secret") {
			return cluster.ErrUnreachable
		}

		return nil
	}

	if err := operator.New(prod(), api).Release(t.Context(), run); err != nil {
		t.Error(err)
	}

	status, _ := api.annotation(prod(), "upgrade.vitistack.io/talos-status")
	if got, stands := api.annotation(prod(), hold); stands || status != "idle" {
		t.Errorf("hold %q, status %q", got, status)
	}
}
