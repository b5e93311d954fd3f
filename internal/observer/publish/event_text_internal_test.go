// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestText_PublishedIsPrintable, whatever a node or somebody else wrote into it.
func TestText_PublishedIsPrintable(t *testing.T) {
	const hostile, shown = "kubelet\x1b]0;owned\a says \u202eno", `kubelet\x1b]0;owned\a says \u202eno`

	said, ok := eventTextOf(cluster.Event{Kind: cluster.EventWarning, Node: "worker-0", Text: hostile})
	if !ok || said.message != shown+" (worker-0)" {
		t.Errorf("the Event says %q", said.message)
	}

	if got := *textValue(hostile); got != shown {
		t.Errorf("the annotation says %q", got)
	}
}
