// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
)

func TestRead_KeepsTheStateOfAClusterOutOfReach(t *testing.T) {
	for name, failure := range map[string]error{
		"no endpoint answers":     fmt.Errorf("endpoint 10.5.0.2: %w", cluster.ErrUnreachable),
		"expired certificate":     fmt.Errorf("certificate expired: %w", cluster.ErrCredentials),
		"role that may not read":  cluster.ErrDenied,
		"error of unknown nature": errors.New("boom"),
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			state := stored(t, fake, "1.13.4", "")
			fake.down = failure

			got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
			check(t, diagnostics, outcome{diag.SeverityWarning, "The state keeps its values"})

			if got == nil || !got.Nodes.Equal(state.Nodes) || !got.Status.Equal(state.Status) {
				t.Error("the state changed")
			}
		})
	}
}

func TestRead_WithoutCredentialsIsAnError(t *testing.T) {
	t.Setenv("TALOSCONFIG", "")

	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	without := connection.NewClusters(&connection.Settings{Dial: connection.Dial}, connection.Credentials{})

	got, diagnostics := read(t.Context(), t, without, state)
	check(t, diagnostics, outcome{diag.SeverityError, "talosconfig (not set), talosconfig_path (not set), endpoints with client_configuration (not set)"})

	if !got.Nodes.Equal(state.Nodes) {
		t.Error("the state changed")
	}
}

// TestRead_OfAnotherClusterIsAWarning: the configuration may name the right context by now, and a refresh goes by the
// state alone.
func TestRead_OfAnotherClusterIsAWarning(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	fake.id = "cluster-b"

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics, outcome{diag.SeverityWarning, "The state belongs to cluster cluster-a, but this provider reaches cluster cluster-b"})

	if got.ID.ValueString() != "cluster-a" {
		t.Error("the state changed")
	}

	named := desired("1.13.4", "")
	named.ID, named.Context = state.ID, types.StringValue("prod")

	_, diagnostics = planned(t, threeNodes("1.13.4", "1.34.2").clusters(t), got, named)
	check(t, diagnostics)
}

func TestRead_FollowsTheClusterButNotTheDesiredVersions(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")

	for index := range fake.nodes {
		fake.nodes[index].talos = "1.13.5"
	}

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	if got.TalosVersion.ValueString() != "1.13.4" {
		t.Errorf("talos_version became %s", got.TalosVersion)
	}

	nodes := map[string]nodeModel{}
	wellDone(t, got.Nodes.ElementsAs(t.Context(), &nodes, false))

	if nodes["worker-0"].TalosVersion.ValueString() != "1.13.5" {
		t.Errorf("worker-0 runs %s in state", nodes["worker-0"].TalosVersion)
	}
}

func TestRead_NodeThatIsAwayDoesNotFlapInState(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	fake.nodes[1].unreachable = cluster.ErrUnreachable

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	if !got.Nodes.Equal(state.Nodes) || !got.Status.Equal(state.Status) {
		t.Error("the state changed because a node did not answer once")
	}
}

// TestRead_ImageThatCannotBeReadDoesNotFlapInState: os:reader may not read a machine configuration, and the image in it
// is the same as before.
func TestRead_ImageThatCannotBeReadDoesNotFlapInState(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")

	for index := range fake.nodes {
		fake.nodes[index].unread, fake.nodes[index].talos = true, "1.13.5"
	}

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	before, after := map[string]nodeModel{}, map[string]nodeModel{}
	wellDone(t, state.Nodes.ElementsAs(t.Context(), &before, false))
	wellDone(t, got.Nodes.ElementsAs(t.Context(), &after, false))

	for name, node := range after {
		if node.Image.IsNull() || !node.Image.Equal(before[name].Image) {
			t.Errorf("the image of %s became %s, and was %s", name, node.Image, before[name].Image)
		}

		if node.TalosVersion.ValueString() != "1.13.5" {
			t.Errorf("%s runs %s in state", name, node.TalosVersion)
		}
	}
}

func TestRead_IsBounded(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")

	ended, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)

	got, diagnostics := read(ended, t, fake.clusters(t), state)
	check(t, diagnostics, outcome{diag.SeverityWarning, "timeouts.read"})

	if !got.Nodes.Equal(state.Nodes) {
		t.Error("the state changed")
	}
}

func TestRead_KeepsFailedUntilTheNodesRunWhatIsDesired(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.nodes[1].talos = "1.13.0"

	state := stored(t, fake, "1.13.0", "")
	state.Status = statusOf(cluster.Observation{}, *state).failed("Unable to upgrade node cp-0.", false).value()

	got, _ := read(t.Context(), t, fake.clusters(t), state)
	if phase := got.Status.Attributes()["phase"]; !phase.Equal(types.StringValue(protocol.PhaseUpgradeFailed)) {
		t.Errorf("phase is %s while the versions are mixed", phase)
	}

	for index := range fake.nodes {
		fake.nodes[index].talos = "1.13.0"
	}

	got, _ = read(t.Context(), t, fake.clusters(t), got)
	if phase := got.Status.Attributes()["phase"]; !phase.Equal(types.StringValue(protocol.PhaseReady)) {
		t.Errorf("phase is %s although every node runs what is desired", phase)
	}
}

func TestRead_KubernetesThatIsAwayDoesNotFlapInState(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "1.34.2")
	fake.kubernetesDown = cluster.ErrUnreachable

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	if !got.Nodes.Equal(state.Nodes) || !got.Status.Equal(state.Status) {
		t.Errorf("the state changed to %s, %s", got.Status, got.Nodes)
	}
}

// TestRead_ShowsAnUnparsableVersionAsItIs: a vendor names its builds as it likes.
func TestRead_ShowsAnUnparsableVersionAsItIs(t *testing.T) {
	t.Parallel()

	node := cluster.Node{Machine: &cluster.Machine{TalosTag: "acme-2026.11"}}
	if shown := newNodeModel(node).TalosVersion.ValueString(); shown != "acme-2026.11" {
		t.Errorf("the version is shown as %q", shown)
	}
}

// TestRead_KeepsNodesThatNothingLists: while the Kubernetes API is away, and discovery
// lists only a part of the nodes or none, the state keeps what it knows, and a plan
// says what it does not.
func TestRead_KeepsNodesThatNothingLists(t *testing.T) {
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
