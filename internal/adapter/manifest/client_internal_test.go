// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"testing"
	"time"
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
