// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// hands upgrade machines one at a time.
type hands struct {
	options Options
	// at is the machine that is being upgraded; nil if there is none.
	at *visit
	// refused is how often the habit of failing at a node struck.
	refused int
}

// visit is an upgrade of a machine that is under way.
type visit struct {
	node, bootID string
	since        time.Time
}

// begin makes a machine upgrade itself. The error is in the operator's words.
func (h *hands) begin(state model.NodeState, to string) error {
	if h.fails(state.Name) {
		return fmt.Errorf("node %s did not come back online", state.Name)
	}

	under := &visit{node: state.Name, bootID: state.BootID, since: h.options.Clock.Now()}

	// If a machine is in the middle of something, the operator had begun before it was restarted.
	if state.Reachable && state.Stage == model.StageRunning {
		if err := h.options.World.UpgradeByHand(state.Name, installerFor(state, to)); err != nil {
			return fmt.Errorf("node %s: %w", state.Name, err)
		}
	}

	h.at = under

	return nil
}

// fails reports whether the habit of failing at a node strikes now.
func (h *hands) fails(node string) bool {
	habits := h.options.Habits
	if habits.FailOn != node || habits.FailTimes > 0 && h.refused >= habits.FailTimes {
		return false
	}

	h.refused++

	return true
}

// back reports whether the machine that is being upgraded is in service again. The error says, in the operator's
// words, why it is not.
func (h *hands) back(to string) (bool, error) {
	state, err := h.options.World.Node(h.at.node)

	switch {
	case err != nil:
		return false, fmt.Errorf("node %s is gone", h.at.node)
	case inService(state) && state.Talos == to:
		h.at = nil

		return true, nil
	case inService(state) && state.BootID != h.at.bootID:
		return false, fmt.Errorf("node %s runs %s after the upgrade to %s", h.at.node, state.Talos, to)
	case h.options.Clock.Now().Sub(h.at.since) > h.options.Patience:
		return false, fmt.Errorf("node %s did not come back online", h.at.node)
	default:
		return false, nil
	}
}

// inService reports whether a machine is fully in service.
func inService(state model.NodeState) bool {
	return state.Reachable && state.Stage == model.StageRunning && state.Ready && state.Kubelet.Ready && !state.Unschedulable &&
		(state.Role == model.Worker || state.EtcdHealthy && state.APIServerUp)
}

// workersFirst returns the machines in the order in which they are upgraded.
func workersFirst(world *model.World) []model.NodeState {
	states := world.Nodes()

	slices.SortStableFunc(states, func(a, b model.NodeState) int { return cmp.Compare(rank(a.Role), rank(b.Role)) })

	return states
}

func rank(role model.Role) int {
	if role == model.Worker {
		return 0
	}

	return 1
}

// lowestTalos returns the oldest version of Talos that a machine runs.
func lowestTalos(world *model.World) version.Version {
	var running []version.Version

	for _, state := range world.Nodes() {
		if parsed, err := version.Parse(state.Talos); err == nil {
			running = append(running, parsed)
		}
	}

	return version.Lowest(running...)
}

// installerFor returns an installer of the flavour that a machine runs.
func installerFor(state model.NodeState, to string) string {
	const generic, firstWithout = "ghcr.io/siderolabs/installer", 14

	repository, _ := splitImage(state.Image)
	if repository != generic || !model.AtLeast(to, 1, firstWithout) {
		return repository + ":v" + to
	}

	flavour := "-installer"
	if state.SecureBoot {
		flavour += "-secureboot"
	}

	return fmt.Sprintf("factory.talos.dev/%s%s/%s:v%s", state.Platform, flavour, model.EmptySchematic, to)
}

// splitImage splits an image, without its digest; the tag may be empty.
func splitImage(image string) (repository, tag string) {
	named, _, _ := strings.Cut(image, "@")

	if colon := strings.LastIndexByte(named, ':'); colon > strings.LastIndexByte(named, '/') {
		return named[:colon], named[colon+1:]
	}

	return named, ""
}

// runs reports whether an image is of the version.
func runs(image, version string) bool {
	_, tag := splitImage(image)

	return plain(tag) == version
}

// supports reports whether a version of Talos runs a version of Kubernetes: the six minor versions up to the one
// that it installs by default.
func supports(talos, kubernetes version.Version) bool {
	const newest, lines = 23, 6

	last := talos.Minor().Minor + newest

	return kubernetes.Minor().Minor <= last && kubernetes.Minor().Minor+lines > last
}
