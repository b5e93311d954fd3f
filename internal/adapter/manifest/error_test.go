// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// patience bounds calls that cannot succeed.
const patience = 3 * time.Second

// broken is a state whose reads all fail.
type broken struct {
	state.CoreState

	err error
}

func (b broken) List(context.Context, resource.Kind, ...state.ListOption) (resource.List, error) {
	return resource.List{}, b.err
}

func (b broken) Get(context.Context, resource.Pointer, ...state.GetOption) (resource.Resource, error) {
	return nil, b.err
}

func TestError_NamesAControlPlaneThatDoesNotAnswer(t *testing.T) {
	r := newRig(t)

	for _, want := range []error{cluster.ErrUnreachable, cluster.ErrDenied, cluster.ErrUnsupported, cluster.ErrCredentials} {
		r.states.set(state.WrapCore(broken{err: want}))

		_, diffErr := r.Diff(t.Context(), controlPlane, serverSide)
		_, applyErr := r.Apply(t.Context(), controlPlane, serverSide)
		_, unreadyErr := r.Unready(t.Context(), controlPlane)

		for call, err := range map[string]error{"diff": diffErr, "apply": applyErr, "unready": unreadyErr} {
			if !errors.Is(err, want) || errors.Is(err, cluster.ErrOutcomeUnknown) || !strings.Contains(err.Error(), controlPlane) {
				t.Errorf("%s: %v, want %v with the address", call, err, want)
			}
		}
	}
}

func TestError_ControlPlaneThatRendersNothingPrunesNothing(t *testing.T) {
	r := newRig(t)
	r.renders()

	_, err := r.Apply(t.Context(), controlPlane, cluster.ManifestOptions{ServerSide: true, Prune: true})
	if !errors.Is(err, cluster.ErrUnreachable) || len(r.wire.taken()) != 0 {
		t.Errorf("%v, want that it renders none", err)
	}
}

func TestError_ObjectOfAForeignInventoryIsRefused(t *testing.T) {
	r := newRig(t)
	r.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Annotations: map[string]string{ssa.InventoryAnnotationKey: "theirs"}}})
	r.renders(settings)

	_, diffErr := r.Diff(t.Context(), controlPlane, serverSide)
	_, applyErr := r.Apply(t.Context(), controlPlane, serverSide)

	for name, err := range map[string]error{"diff": diffErr, "apply": applyErr} {
		if !errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrUnreachable) || !strings.Contains(err.Error(), "settings") {
			t.Errorf("%s: %v, want a refusal that names the object", name, err)
		}
	}
}

func TestError_BrokenConnectionIsNotWaitedFor(t *testing.T) {
	r := newRig(t)
	r.renders(settings)

	for name, test := range map[string]struct {
		breaks  func(*http.Request) bool
		unknown bool
		options cluster.ManifestOptions
	}{
		"from the start": {func(*http.Request) bool { return true }, true, serverSide},
		"while comparing": {func(request *http.Request) bool {
			return request.Method == http.MethodPatch && !writes(request)
		}, false, serverSide},
		"while writing":           {func(request *http.Request) bool { return request.Method == http.MethodPatch && writes(request) }, true, serverSide},
		"while writing as before": {writes, true, cluster.ManifestOptions{}},
	} {
		for cause, lost := range map[string]error{"refused": syscall.ECONNREFUSED, "cut": io.ErrUnexpectedEOF} {
			r.wire.breaks(func(request *http.Request) error {
				if test.breaks(request) {
					return lost
				}

				return nil
			})

			// client-go itself repeats a read whose connection was cut, and the
			// way before inventories everything, until the context ends. What is not
			// repeated ends long before a longer one, also on a machine that is busy.
			limit := 10 * patience
			if cause == "cut" && name == "from the start" || !test.options.ServerSide {
				limit = patience
			}

			ctx, cancel := context.WithTimeout(t.Context(), limit)
			started := time.Now()
			_, err := r.Apply(ctx, controlPlane, test.options)

			cancel()

			if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) != test.unknown {
				t.Errorf("%s, %s: %v, want unreachable, and outcome unknown: %t", name, cause, err, test.unknown)
			}

			if took := time.Since(started); took > 5*patience {
				t.Errorf("%s, %s: took %s", name, cause, took)
			}
		}
	}

	r.wire.breaks(nil)

	changes, err := r.Apply(t.Context(), controlPlane, serverSide)
	r.expect("sync when it is back", changes, err, "create ConfigMap/NAMESPACE/settings")
}

func TestError_CallEndsWithItsCaller(t *testing.T) {
	r := newRig(t)
	r.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}})
	r.renders(settings)

	reason := errors.New("the run was stopped")

	for name, options := range map[string]cluster.ManifestOptions{"server-side": serverSide, "legacy": {}} {
		for call, run := range map[string]func(context.Context, string, cluster.ManifestOptions) ([]cluster.ManifestChange, error){
			"diff": r.Diff, "apply": r.Apply,
		} {
			ctx, cancel := context.WithCancelCause(t.Context())

			r.wire.breaks(func(request *http.Request) error {
				if request.Method != http.MethodGet {
					cancel(reason)
				}

				return ctx.Err()
			})

			if _, err := run(ctx, controlPlane, options); !errors.Is(err, reason) {
				t.Errorf("%s, %s: %v, want the reason", name, call, err)
			}

			cancel(nil)
		}
	}
}
