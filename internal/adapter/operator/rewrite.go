// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// attempts is how often a change is made anew because somebody else wrote the
// object at the same time, or because the reply was lost. An operator that is at
// work writes every few seconds.
const attempts = 5

// rewrite changes an object on the condition that it is as it was read. What
// decides sees the object and says what to change, nil for nothing; its errors end
// the attempt. The object may have been read already, nil where it was not.
func rewrite(ctx context.Context, access cluster.ObjectAccess, of cluster.Reference, read object, decide func(object) (map[string]any, error)) error {
	var last error

	for range attempts {
		if read == nil {
			found, err := access.Object(ctx, of)
			if err != nil {
				return unseen(err, last)
			}

			read = found
		}

		patch, err := decide(read)
		if err != nil || patch == nil {
			return err
		}

		_, last = access.PatchObject(ctx, of, "", conditional(patch, read.text("metadata", "resourceVersion")))
		if !repeatable(last) {
			return last
		}

		read = nil
	}

	return fmt.Errorf("unable to change %s in %d attempts: %w", of, attempts, last)
}

// conditional makes a patch apply to the given version of the object only.
func conditional(patch map[string]any, resourceVersion string) map[string]any {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}

	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}

	patch["metadata"] = metadata

	return patch
}

// annotate changes one annotation; nil takes it away.
func annotate(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// repeatable tells whether looking again shows what is left to be done.
func repeatable(err error) bool {
	return errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrOutcomeUnknown)
}

// unseen is the error of a look at the outcome of an earlier change. Where that may
// have been made, it says so.
func unseen(err, earlier error) error {
	if !errors.Is(earlier, cluster.ErrOutcomeUnknown) || errors.Is(err, cluster.ErrNotFound) {
		return err
	}

	return fmt.Errorf("%w; whether an earlier change was made is not known: %w", err, earlier)
}
