// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa/object"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// longestDiff is how many lines of a diff are shown.
	longestDiff = 200
	// secretDiff stands in for the diff of a Secret.
	secretDiff = "(the content of a Secret is not shown)\n"
)

// actionOf translates what the library did, or would do; false if that changes nothing.
func actionOf(action string) (cluster.ManifestAction, bool) {
	switch action {
	case string(ssa.CreatedAction):
		return cluster.ManifestCreated, true
	case string(ssa.ConfiguredAction):
		return cluster.ManifestConfigured, true
	case string(ssa.DeletedAction), string(ssa.DiffPrunedAction):
		return cluster.ManifestPruned, true
	default:
		return "", false
	}
}

func newChange(subject object.ObjMetadata, action cluster.ManifestAction, diff string) cluster.ManifestChange {
	if subject.GroupKind.Kind == "Secret" {
		diff = secretDiff
	}

	return cluster.ManifestChange{Object: ssa.FormatMetaPath(subject), Action: action, Diff: bounded(diff)}
}

func bounded(diff string) string {
	lines := strings.SplitAfter(diff, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}

	if len(lines) <= longestDiff {
		return diff
	}

	return strings.Join(lines[:longestDiff], "") + fmt.Sprintf("... %d more lines\n", len(lines)-longestDiff)
}

// sorted sorts the changes by object, regardless of the order in which the control plane renders them.
func sorted(changes []cluster.ManifestChange) []cluster.ManifestChange {
	slices.SortStableFunc(changes, func(a, b cluster.ManifestChange) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Action, b.Action))
	})

	return changes
}
