// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func declared(kind, name string) cluster.Reference {
	return cluster.Reference{APIVersion: "talos.alperen.cloud/v1alpha1", Kind: kind, Namespace: "tenant-a", Name: name}
}

func plane() cluster.Reference { return declared("TalosControlPlane", "prod") }

func made(of cluster.Reference, spec, status map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": of.APIVersion, "kind": of.Kind, "metadata": map[string]any{"namespace": of.Namespace, "name": of.Name},
		"spec": spec, "status": status,
	}
}

func referring(key, name, talos string) map[string]any {
	return map[string]any{key: map[string]any{"name": name}, "version": talos}
}

// fleet returns a cluster of two control planes and a worker, at rest, beside another one.
func fleet(t *testing.T) *store {
	t.Helper()

	pool := referring("controlPlaneRef", "prod", "v1.12.6")
	pool["kubeVersion"] = "v1.34.2"
	bare := referring("workerRef", "pool", "")
	delete(bare, "version")

	return newStore(t,
		made(plane(), map[string]any{"version": "v1.12.6", "kubeVersion": "v1.34.2"}, map[string]any{"state": "Ready", "observedKubeVersion": "v1.34.2"}),
		made(declared("TalosWorker", "pool"), pool, nil),
		made(declared("TalosWorker", "other"), referring("controlPlaneRef", "other", "v1.11.0"), nil),
		made(declared("TalosMachine", "cp-0"), referring("controlPlaneRef", "prod", "v1.12.6"), map[string]any{"observedVersion": "v1.12.6", "state": "Available"}),
		made(declared("TalosMachine", "cp-1"), referring("controlPlaneRef", "prod", "v1.12.6"), map[string]any{"observedVersion": "1.12.6", "state": "Available"}),
		made(declared("TalosMachine", "worker-0"), bare, map[string]any{"observedVersion": "v1.12.6", "state": "Available"}),
		made(declared("TalosMachine", "stranger"), referring("workerRef", "other", "v1.13.4"), map[string]any{"observedVersion": "v1.11.0", "state": "Upgrading"}),
	)
}

func (s *store) set(of cluster.Reference, part string, fields map[string]any) {
	maps.Copy(dig(s.objects[of.String()], part), fields)
}

func TestDeclarative_IsReported(t *testing.T) {
	t.Parallel()

	undo := "Set spec.version of TalosControlPlane tenant-a/prod, and of its workers and machines, back to "

	for name, test := range map[string]struct {
		arrange           func(*store)
		talos, kubernetes cluster.OperatorProduct
		failed            []string
	}{
		"at rest": {arrange: func(*store) {}},
		"asked, and nobody has reacted": {
			arrange: func(s *store) { s.set(plane(), "spec", map[string]any{"version": "v1.13.4", "kubeVersion": "v1.35.2"}) },
			talos:   cluster.OperatorProduct{Target: "1.13.4", Undo: undo + "1.12.6."}, kubernetes: cluster.OperatorProduct{Target: "1.35.2"},
		},
		"one machine at work": {
			arrange: func(s *store) {
				s.set(plane(), "spec", map[string]any{"version": "v1.13.4"})
				s.set(declared("TalosMachine", "cp-0"), "spec", map[string]any{"version": "v1.13.4"})
				s.set(declared("TalosMachine", "cp-0"), "status", map[string]any{"observedVersion": "v1.13.4", "state": "Upgrading"})
			},
			talos: cluster.OperatorProduct{Target: "1.13.4", Undo: undo + "1.12.6.", Status: protocol.StatusInProgress, Progress: "1/3", Message: "Upgrading machine cp-0"},
		},
		"between two machines": {
			arrange: func(s *store) {
				s.set(declared("TalosWorker", "pool"), "spec", map[string]any{"version": "v1.13.4"})
			},
			talos: cluster.OperatorProduct{Target: "1.13.4", Undo: undo + "1.12.6."},
		},
		"the last machine, which notes its version early": {
			arrange: func(s *store) {
				s.set(declared("TalosMachine", "worker-0"), "status", map[string]any{"state": "Installing"})
			},
			talos: cluster.OperatorProduct{Target: "1.12.6", Undo: undo + "1.12.6.", Status: protocol.StatusInProgress, Progress: "2/3", Message: "Upgrading machine worker-0"},
		},
		"failed": {
			arrange: func(s *store) {
				s.set(declared("TalosMachine", "cp-1"), "status", map[string]any{"state": "Failed", "conditions": []any{
					map[string]any{"type": "Ready", "status": "True", "message": "fine"}, map[string]any{"type": "Failed", "status": "True", "message": "no space left"},
				}})
			},
			talos:  cluster.OperatorProduct{Status: protocol.StatusFailed, Message: "Talos upgrade failed: machine cp-1: no space left"},
			failed: []string{"cp-1"},
		},
		"a Job at work": {
			arrange: func(s *store) {
				s.set(plane(), "spec", map[string]any{"kubeVersion": "v1.35.2"})
				s.set(plane(), "status", map[string]any{"state": "UpgradingKubernetes"})
			},
			kubernetes: cluster.OperatorProduct{Target: "1.35.2", Status: protocol.StatusInProgress, Message: "Upgrading Kubernetes: 1.34.2 → 1.35.2"},
		},
		"a Job that failed": {
			arrange: func(s *store) {
				s.set(plane(), "spec", map[string]any{"kubeVersion": "v1.35.2"})
				s.set(plane(), "status", map[string]any{"state": "KubernetesUpgradeFailed"})
			},
			kubernetes: cluster.OperatorProduct{
				Target: "1.35.2", Status: protocol.StatusFailed,
				Message: "Kubernetes upgrade failed: TalosControlPlane tenant-a/prod is in the state KubernetesUpgradeFailed",
			},
		},
	} {
		api := fleet(t)
		test.arrange(api)

		for _, half := range []*cluster.OperatorProduct{&test.talos, &test.kubernetes} {
			if half.Status == "" {
				half.Status = protocol.StatusIdle
			}
		}

		test.talos.Current, test.kubernetes.Current = "1.12.6", "1.34.2"

		got, err := operator.New(plane(), api).Report(t.Context())
		if diff := cmp.Diff(cluster.OperatorReport{Talos: test.talos, Kubernetes: test.kubernetes, FailedNodes: test.failed}, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestDeclarative_ControlPlaneWithoutMachinesSaysWhatItCan(t *testing.T) {
	t.Parallel()

	for state, want := range map[string]protocol.Status{"Upgrading": protocol.StatusInProgress, "Failed": protocol.StatusFailed, "Ready": protocol.StatusIdle} {
		api := newStore(t, made(plane(), map[string]any{"version": "v1.12.6"}, map[string]any{"state": state}))

		report, err := operator.New(plane(), api).Report(t.Context())
		if err != nil || report.Talos.Status != want || report.Talos.Current != "" || report.Talos.Progress != "" {
			t.Errorf("%s: %v %+v", state, err, report.Talos)
		}
	}
}

func TestDeclarative_ManyMachinesAreCounted(t *testing.T) {
	t.Parallel()

	api := newStore(t, made(plane(), map[string]any{"version": "v1.13.4"}, nil))
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		api.put(made(declared("TalosMachine", name), referring("controlPlaneRef", "prod", "v1.13.4"), map[string]any{"observedVersion": "v1.12.6", "state": "Upgrading"}))
	}

	report, err := operator.New(plane(), api).Report(t.Context())
	if err != nil || report.Talos.Message != "Upgrading machines a, b, c, d, e, 2 more" || report.Talos.Progress != "0/7" {
		t.Errorf("%+v, %v", report.Talos, err)
	}
}

// TestDeclarative_RequestAloneLooksLikeNoReaction: as long as the operator does nothing, only the target differs,
// even if an old failure stands.
func TestDeclarative_RequestAloneLooksLikeNoReaction(t *testing.T) {
	t.Parallel()

	for name, arrange := range map[string]func(*store){
		"at rest":             func(*store) {},
		"after a failed roll": func(s *store) { s.set(declared("TalosMachine", "cp-1"), "status", map[string]any{"state": "Failed"}) },
		"after a failed Job":  func(s *store) { s.set(plane(), "status", map[string]any{"state": "KubernetesUpgradeFailed"}) },
		"without any machines": func(s *store) {
			maps.DeleteFunc(s.objects, func(key string, _ map[string]any) bool { return key != plane().String() })
		},
	} {
		api := fleet(t)
		arrange(api)

		of := operator.New(plane(), api)
		before, err := of.Report(t.Context())
		asked := errors.Join(of.Ask(t.Context(), version.Talos, parsed("1.13.4")), of.Ask(t.Context(), version.Kubernetes, parsed("1.35.2")))
		after, again := of.Report(t.Context())

		for _, half := range []*cluster.OperatorProduct{&before.Talos, &before.Kubernetes, &after.Talos, &after.Kubernetes} {
			half.Target, half.Undo = "", ""
		}

		if diff := cmp.Diff(before, after); diff != "" || errors.Join(err, asked, again) != nil {
			t.Errorf("%s: %v %s", name, errors.Join(err, asked, again), diff)
		}
	}
}

func TestDeclarative_EveryObjectIsToldTheVersion(t *testing.T) {
	t.Parallel()

	for product, test := range map[version.Product]struct {
		field, to string
		told      []cluster.Reference
	}{
		version.Talos: {"version", "v1.13.4", []cluster.Reference{
			plane(), declared("TalosWorker", "pool"), declared("TalosMachine", "cp-0"), declared("TalosMachine", "cp-1"),
		}},
		version.Kubernetes: {"kubeVersion", "v1.35.2", []cluster.Reference{plane(), declared("TalosWorker", "pool")}},
	} {
		api := fleet(t)
		of := operator.New(plane(), api)

		var order []string

		for range 2 {
			if err := of.Ask(t.Context(), product, parsed(test.to)); err != nil {
				t.Errorf("%s: %v", product, err)
			}
		}

		for _, one := range test.told {
			order = append(order, "patch "+one.String())

			if got := api.spec(one, test.field); got != test.to {
				t.Errorf("%s: spec.%s of %s is %q", product, test.field, one, got)
			}
		}

		// The second time there is nothing left to change.
		if !slices.Equal(api.changes(), order) {
			t.Errorf("%s: %q, want %q", product, api.changes(), order)
		}
	}
}

func TestDeclarative_UnsupportedRequestChangesNothing(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		arrange func(*store)
		half    version.Product
		to      version.Version
		want    error
		words   string
	}{
		"an older Kubernetes": {func(*store) {}, version.Kubernetes, parsed("1.34.1"), cluster.ErrRefused, "cannot be lowered"},
		"one that is older than the workers'": {func(s *store) {
			s.set(declared("TalosWorker", "pool"), "spec", map[string]any{"kubeVersion": "v1.36.0"})
		}, version.Kubernetes, parsed("1.35.2"), cluster.ErrRefused, "TalosWorker tenant-a/pool"},
		"one whose workers may not be listed":  {func(s *store) { s.before = once("list TalosWorker", 1, func() error { return cluster.ErrDenied }) }, version.Talos, parsed("1.13.4"), cluster.ErrDenied, ""},
		"no version":                           {func(*store) {}, version.Talos, version.Version{}, cluster.ErrRefused, "not known"},
		"one whose machines may not be listed": {func(s *store) { s.before = once("list TalosMachine", 1, func() error { return cluster.ErrDenied }) }, version.Talos, parsed("1.13.4"), cluster.ErrDenied, ""},
	} {
		api := fleet(t)
		test.arrange(api)

		err := operator.New(plane(), api).Ask(t.Context(), test.half, test.to)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) || len(api.changes()) != 0 {
			t.Errorf("%s: %v after %q", name, err, api.changes())
		}
	}
}

func TestDeclarative_RequestSucceedsBesideTheOperatorsWrites(t *testing.T) {
	t.Parallel()

	for name, arrange := range map[string]func(*store){
		"which writes the same objects": func(s *store) {
			s.before = once("patch TalosMachine tenant-a/cp-0", 3, func() error {
				dig(s.objects["TalosMachine tenant-a/cp-0"], "metadata")["resourceVersion"] = s.next()

				return nil
			})
		},
		"which told a machine first": func(s *store) {
			s.before = once("patch TalosMachine tenant-a/cp-0", 1, func() error {
				s.set(declared("TalosMachine", "cp-0"), "spec", map[string]any{"version": "v1.13.4"})
				dig(s.objects["TalosMachine tenant-a/cp-0"], "metadata")["resourceVersion"] = s.next()

				return nil
			})
		},
		"whose machine is gone": func(s *store) {
			s.before = once("patch TalosWorker", 1, func() error {
				delete(s.objects, "TalosMachine tenant-a/cp-0")

				return nil
			})
		},
		"over a lost reply": func(s *store) { s.after = once("patch TalosMachine tenant-a/cp-0", 1, lost) },
	} {
		api := fleet(t)
		arrange(api)

		if err := operator.New(plane(), api).Ask(t.Context(), version.Talos, parsed("1.13.4")); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if got := api.spec(declared("TalosMachine", "cp-1"), "version"); got != "v1.13.4" {
			t.Errorf("%s: the last machine is told %q", name, got)
		}
	}
}

func TestDeclarative_ObjectThatCannotBeToldIsNamed(t *testing.T) {
	t.Parallel()

	api := fleet(t)
	api.before = once("patch TalosWorker", 1, func() error { return cluster.ErrDenied })

	err := operator.New(plane(), api).Ask(t.Context(), version.Talos, parsed("1.13.4"))
	if !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), "spec.version of TalosWorker tenant-a/pool to v1.13.4") {
		t.Error(err)
	}

	if got := api.spec(declared("TalosMachine", "cp-0"), "version"); got != "v1.12.6" {
		t.Errorf("a machine is told %q after that", got)
	}
}

func TestDeclarative_IsNeitherHeldNorTakenBack(t *testing.T) {
	t.Parallel()

	api := fleet(t)
	of := operator.New(plane(), api)

	for _, err := range []error{of.Hold(t.Context(), run, ""), of.Withdraw(t.Context(), version.Talos, parsed("1.13.4"))} {
		if !errors.Is(err, cluster.ErrUnsupported) || !strings.Contains(err.Error(), plane().String()) {
			t.Error(err)
		}
	}

	if err := errors.Join(of.Release(t.Context(), run), of.Settle(t.Context(), parsed("1.13.4"), parsed("1.35.2"))); err != nil || len(api.requests) != 0 {
		t.Errorf("%v after %q", err, api.requests)
	}
}
