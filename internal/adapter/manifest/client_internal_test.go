// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestClient_MoreObjectsAreGivenMoreTime(t *testing.T) {
	t.Parallel()

	for objects, want := range map[int]time.Duration{0: time.Minute, 16: 124 * time.Second, 500: 2060 * time.Second} {
		job := &job{base: applyTimeout, each: applyObject}

		ctx, cancel := job.bound(t.Context(), objects)
		deadline, ok := ctx.Deadline()

		cancel()

		if left := time.Until(deadline); !ok || job.limit != want || left > want || left < want-time.Minute/2 {
			t.Errorf("%d objects: %s, left %s; want %s", objects, job.limit, left, want)
		}
	}
}

func TestRender_NamesOfManifestsGrantNoAccess(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		"cni":                                    "cni",
		"https://example.com/cni.yaml":           "https://example.com/cni.yaml",
		"https://me:pw@example.com/cni.yaml?a=b": "https://example.com/cni.yaml",
		"99-https://me:pw@example.com/c.yaml?a":  "99-https://example.com/c.yaml",
		"git::https://me:p/w@example.com/c.yaml": "git::https://example.com/c.yaml",
		"https://example.com/c.yaml#token":       "https://example.com/c.yaml",
		"https://cdn.example/c@v1.15/x.yaml":     "https://cdn.example/c@v1.15/x.yaml",
		"https://me:p?w@example.com/c.yaml":      "https://example.com/c.yaml",
	} {
		if got := withoutSecrets(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// TestForce_RecreatesOnlyWhatImmutableFieldsKeepFromBeingChanged: anything else may be refused once more when the object is
// gone.
func TestForce_RecreatesOnlyWhatImmutableFieldsKeepFromBeingChanged(t *testing.T) {
	t.Parallel()

	at := field.NewPath("spec")
	invalid := func(reasons ...*field.Error) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "DaemonSet"}, "proxy", reasons)
	}
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{
		Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity, Message: "denied: images are immutable",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "ValidatingAdmissionPolicy 'immutable-tags' denied request: tags are immutable"}}},
	}}

	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a selector":            {invalid(field.Invalid(at, map[string]string{"a": "b"}, "field is immutable")), true},
		"immutable data":        {invalid(field.Forbidden(at, "field is immutable when `immutable` is set")), true},
		"a StatefulSet":         {invalid(field.Forbidden(at, "updates to statefulset spec for fields other than 'replicas' are forbidden")), true},
		"a Service":             {invalid(field.Invalid(at, "10.0.0.1", "may not change once set")), true},
		"a role":                {invalid(field.Invalid(at, "x", "cannot change roleRef")), true},
		"another fault as well": {invalid(field.Invalid(at, "x", "field is immutable"), field.Required(at, "a port")), false},
		"a value of that name":  {invalid(field.Invalid(at, "immutable", "must be a port")), false},
		"a policy":              {denied, false},
		"a webhook":             {apierrors.NewForbidden(schema.GroupResource{}, "proxy", errors.New("the field is immutable")), false},
		"a conflict":            {apierrors.NewConflict(schema.GroupResource{}, "proxy", errors.New("immutable")), false},
		"nothing":               {nil, false},
		"no answer of the API":  {errors.New("immutable"), false},
	} {
		if got := frozen(test.err); got != test.want {
			t.Errorf("%s: %t, want %t: %v", name, got, test.want, test.err)
		}
	}
}
