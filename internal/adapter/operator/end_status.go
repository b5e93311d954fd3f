// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// endStatus has the phase and the conditions of halves that were cut off say so,
// where the object has such. It is for people: the hold has ended, whatever becomes
// of it.
func (a *annotated) endStatus(ctx context.Context, cut []cluster.Half) {
	ctx, cancel := context.WithTimeout(ctx, secretMost)
	defer cancel()

	read, err := a.access.Object(ctx, a.of)
	if err != nil {
		return
	}

	if changes := endedStatus(read, cut, time.Now().UTC()); changes != nil {
		_, _ = a.access.PatchObject(ctx, a.of, "status", map[string]any{
			"metadata": map[string]any{"resourceVersion": object(read).text("metadata", "resourceVersion")},
			"status":   changes,
		})
	}
}

// endedStatus is what changes of the status; nil where nothing does. A list is
// replaced as a whole, so that foreign conditions are in it as they were.
func endedStatus(read object, cut []cluster.Half, now time.Time) map[string]any {
	conditions, _, err := unstructured.NestedSlice(read, "status", "conditions")
	if err != nil {
		return nil
	}

	changes, stale := map[string]any{}, false

	for _, one := range conditions {
		condition, ok := one.(map[string]any)
		if !ok {
			continue
		}

		about := func(half cluster.Half) bool { return object(condition).text("type") == half.Name()+"Upgrade" }
		if slices.ContainsFunc(cut, about) && object(condition).text("status") == "True" {
			condition["status"], condition["reason"], condition["message"] = "False", "Failed", cutOff
			condition["lastTransitionTime"], stale = now.Format(time.RFC3339), true
		}
	}

	if stale {
		changes["conditions"] = conditions
	}

	if strings.HasPrefix(read.text("status", "phase"), "Upgrading") {
		changes["phase"] = "UpgradeFailed"
	}

	if len(changes) == 0 {
		return nil
	}

	return changes
}
