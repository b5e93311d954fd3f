// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// backoffMost bounds the pause between two attempts, however many there were.
const backoffMost = 5 * time.Minute

// backoff is the pause before an attempt, which is counted from 1: there is none
// before the first.
func backoff(repeat cluster.Repeat, attempt int) time.Duration {
	if attempt < 2 {
		return 0
	}

	pause := repeat.Backoff
	for range attempt - 2 {
		if pause >= backoffMost {
			break
		}

		pause *= 2
	}

	return max(repeat.Backoff, min(pause, backoffMost))
}

// pullPatience is how long a pull that may heal is tried again whatever the policy
// says: from Talos 1.14 on a node tries once, and a registry that has had enough
// for a moment must not end a run.
const pullPatience = 5 * time.Minute

// pullPause is the least pause before an attempt that the policy did not ask for.
const pullPause = 10 * time.Second

// repeated tries a pull again that failed in a way which may heal: for as long as
// [pullPatience], then as often as the policy allows, and within the time that one
// image may take.
func (r *run) repeated(ctx context.Context, node, image string, do func(context.Context) error) error {
	bounded, cancel := r.engine.clock.WithTimeout(ctx, cluster.PullTimeout)
	defer cancel()

	repeat := r.request.Policy.Repeat
	begun := r.engine.clock.Now()

	for attempt := 1; ; attempt++ {
		err := do(bounded)
		if err == nil || !cluster.Heals(err) {
			return err
		}

		pause := backoff(repeat, attempt+1)

		if attempt >= repeat.Attempts {
			left := pullPatience - r.engine.clock.Now().Sub(begun)
			if left <= 0 {
				return err
			}

			pause = min(max(pause, pullPause), left)
		}

		r.emit(cluster.Event{Kind: cluster.EventWaiting, Node: node, Text: fmt.Sprintf(
			"%s to be pulled on %s, which is tried again in %s: %v", image, node, pause.Round(time.Second), err)})

		if r.engine.clock.Sleep(bounded, pause) != nil {
			return err
		}
	}
}

// pause waits before an install is tried again that did not take. Nothing is armed
// then.
func (u *nodeUpgrade) pause(ctx context.Context, attempt int) error {
	if err := u.forget(ctx); err != nil {
		return fmt.Errorf("%s: %w", u.untaken(attempt-1), err)
	}

	pause := backoff(u.run.request.Policy.Repeat, attempt)
	if err := u.run.engine.clock.Sleep(ctx, pause); err != nil {
		return fmt.Errorf("%s, and another attempt was to follow after %s: %w", u.untaken(attempt-1), pause, err)
	}

	return nil
}

// untaken says how often an install did not take, which is not known of a node
// that was not heard to begin it.
func (u *nodeUpgrade) untaken(attempts int) string {
	if u.installs >= attempts {
		return fmt.Sprintf("%s was installed %s and did not take", u.entry.Image, times(attempts))
	}

	return fmt.Sprintf("the node was asked %s to install %s, and whether it began is not known", times(attempts), u.entry.Image)
}

// times is a number of attempts in words.
func times(attempts int) string {
	if attempts == 1 {
		return "once"
	}

	return fmt.Sprintf("%d times", attempts)
}
