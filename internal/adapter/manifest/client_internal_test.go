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
