// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

func TestReadKeepsTheStateOfAClusterOutOfReach(t *testing.T) {
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

func TestReadWithoutCredentialsIsAnError(t *testing.T) {
	t.Setenv(talosconfigEnv, "")

	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	without := newClusters(&settings{dial: dial}, credentials{})

	got, diagnostics := read(t.Context(), t, without, state)
	check(t, diagnostics, outcome{diag.SeverityError, "talosconfig (not set), talosconfig_path (not set), endpoints with client_configuration (not set)"})

	if !got.Nodes.Equal(state.Nodes) {
		t.Error("the state changed")
	}
}

func TestReadOfAnotherClusterIsRefused(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	fake.id = "cluster-b"

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics, outcome{diag.SeverityError, "The state belongs to cluster cluster-a, but this provider reaches cluster cluster-b"})

	if got.ID.ValueString() != "cluster-a" {
		t.Error("the state changed")
	}
}

func TestReadFollowsTheClusterButNotTheDesiredVersions(t *testing.T) {
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

func TestNodeThatIsAwayDoesNotFlapInState(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	fake.nodes[1].unreachable = cluster.ErrUnreachable

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	if !got.Nodes.Equal(state.Nodes) || !got.Status.Equal(state.Status) {
		t.Error("the state changed because a node did not answer once")
	}
}

func TestReadIsBounded(t *testing.T) {
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

func TestFailedPhaseStaysUntilTheNodesRunWhatIsDesired(t *testing.T) {
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

func TestKubernetesThatIsAwayDoesNotFlapInState(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "1.34.2")
	fake.kubernetesDown = cluster.ErrUnreachable

	got, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	if !got.Nodes.Equal(state.Nodes) || !got.Status.Equal(state.Status) {
		t.Errorf("the state changed to %s, %s", got.Status, got.Nodes)
	}
}

// TestVersionThatIsNoneIsShownAsItIs: a vendor names its builds as it likes.
func TestVersionThatIsNoneIsShownAsItIs(t *testing.T) {
	t.Parallel()

	node := cluster.Node{Machine: &cluster.Machine{TalosTag: "acme-2026.11"}}
	if shown := newNodeModel(node).TalosVersion.ValueString(); shown != "acme-2026.11" {
		t.Errorf("the version is shown as %q", shown)
	}
}
