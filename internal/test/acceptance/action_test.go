// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"os"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// withActions returns an empty workspace with a Terraform that has actions.
func withActions(t *testing.T) *workspace {
	t.Helper()

	pinned, err := toolchain.PinnedTerraform(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.command = pinned.Path

	return w
}

// invoke invokes the action of the name, such as "suspend.this".
func (w *workspace) invoke(name string) result {
	w.t.Helper()

	return w.apply("-invoke=action.talosupgrade_" + name)
}

// mustSay fails the test unless the action succeeded and its output has all of the texts.
func (r result) mustSay(texts ...string) {
	r.t.Helper()
	r.mustSucceed(0)

	for _, text := range texts {
		if !strings.Contains(r.output, text) {
			r.t.Errorf("it does not say %q:\n%s", text, r.output)
		}
	}
}
