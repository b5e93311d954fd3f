// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Registry is a registry that has every image, except those that a test excludes. It is safe for concurrent use.
type Registry struct {
	mu     sync.Mutex
	wrong  map[string]error
	usual  error
	asked  []string
	before func(ctx context.Context, reference string) error
}

var _ cluster.Registry = (*Registry)(nil)

// NewRegistry makes a registry that has every image.
func NewRegistry() *Registry { return &Registry{wrong: map[string]error{}} }

// Missing makes the registry answer that it does not have the images.
func (r *Registry) Missing(references ...string) {
	r.set(fmt.Errorf("%w: MANIFEST_UNKNOWN", cluster.ErrNotFound), references)
}

// Deny makes the registry deny the images to the runner.
func (r *Registry) Deny(references ...string) {
	r.set(fmt.Errorf("%w: UNAUTHORIZED", cluster.ErrDenied), references)
}

// Unreachable makes the registry unreachable for the images; without any, for all images.
func (r *Registry) Unreachable(references ...string) {
	silence := fmt.Errorf("%w: dial tcp: i/o timeout", cluster.ErrUnreachable)

	if len(references) > 0 {
		r.set(silence, references)

		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.usual = silence
}

// Present undoes that for the images; without any, for all.
func (r *Registry) Present(references ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(references) == 0 {
		r.usual, r.wrong = nil, map[string]error{}
	}

	for _, reference := range references {
		delete(r.wrong, reference)
	}
}

// Before sets a function that is called before every answer; its error is the answer.
func (r *Registry) Before(before func(ctx context.Context, reference string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.before = before
}

func (r *Registry) set(answer error, references []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, reference := range references {
		r.wrong[reference] = answer
	}
}

// Asked returns the images that it was asked about, in order.
func (r *Registry) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return append([]string(nil), r.asked...)
}

// Image implements [cluster.Registry].
func (r *Registry) Image(ctx context.Context, reference string) error {
	what := "unable to find image " + reference

	r.mu.Lock()
	r.asked = append(r.asked, reference)
	answer, before := r.wrong[reference], r.before

	if answer == nil {
		answer = r.usual
	}
	r.mu.Unlock()

	if before != nil {
		if err := before(ctx, reference); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}

	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, interrupted(ctx, false))
	}

	if answer != nil {
		return fmt.Errorf("%s: %w", what, answer)
	}

	return nil
}
