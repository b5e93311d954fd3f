// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// TestNodesThatNothingListsStay: while the Kubernetes API is away, and discovery
// lists only a part of the nodes or none, the state keeps what it knows, and a plan
// says what it does not.
func TestNodesThatNothingListsStay(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.nodes[2].talos = "1.12.6"
	state := stored(t, fake, "1.13.4", "")

	fake.kubernetesDown = cluster.ErrUnreachable
	fake.nodes[1].undiscovered, fake.nodes[2].undiscovered = true, true

	refreshed, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	if !refreshed.Nodes.Equal(state.Nodes) {
		t.Errorf("after a refresh the nodes are %s, want %s", refreshed.Nodes, state.Nodes)
	}

	if message := text(refreshed.Status, "message"); !strings.Contains(message, "Nothing lists worker-0, worker-1 right now") || !strings.Contains(message, "1.12.6 to 1.13.4") {
		t.Errorf("the status says %q", message)
	}

	if got := earlierStatus(refreshed.Status, "talos"); got != protocol.StatusPending {
		t.Errorf("the Talos half is %s, though what is not listed was not at the target", got)
	}

	got, diagnostics := planned(t, fake.clusters(t), refreshed, refreshed)
	check(t, diagnostics, outcome{diag.SeverityWarning, "the state knows worker-0, worker-1, and neither the Kubernetes API"})

	if !got.Nodes.IsUnknown() || !got.Status.IsUnknown() {
		t.Errorf("the nodes are planned as %s, want them unknown", got.Nodes)
	}

	fake.nodes[0].undiscovered = true

	kept, diagnostics := read(t.Context(), t, fake.clusters(t), refreshed)
	check(t, diagnostics, outcome{diag.SeverityWarning, "discovery lists none and the Kubernetes API did not answer"})

	if !kept.Nodes.Equal(state.Nodes) {
		t.Errorf("after a refresh that saw no node the nodes are %s", kept.Nodes)
	}

	_, diagnostics = planned(t, fake.clusters(t), kept, kept)
	check(t, diagnostics, outcome{diag.SeverityWarning, "discovery lists none and the Kubernetes API did not answer"})

	fake.kubernetesDown = nil
	fake.nodes = fake.nodes[:2]

	left, diagnostics := read(t.Context(), t, fake.clusters(t), kept)
	check(t, diagnostics)

	if _, there := left.Nodes.Elements()["worker-1"]; there {
		t.Error("a node that Kubernetes does not list any more stays in the state")
	}
}
