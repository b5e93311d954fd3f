// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"testing"
	"testing/synctest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// noted serves a cluster in a bubble of its own, and returns what a test of it
// found wrong: a bubble in which nothing can go on included.
func noted(t *testing.T, given harness.Setup, test func(*rig)) []string {
	found := &harness.Note{TB: t}

	found.Guarded(func() {
		synctest.Test(t, func(*testing.T) {
			found.Guarded(func() { serve(found, given, test) })
		})
	})

	return found.All()
}
