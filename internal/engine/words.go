// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"strings"
)

// The services whose logs say why a node, or a component on it, is not well.
const (
	serviceMachined = "machined"
	serviceKubelet  = "kubelet"
)

// wordsMost is how many lines of a log are worth the room in a message.
const wordsMost = 12

// Excerpt is what something said last.
type Excerpt struct {
	// Source is who said it: "machined on worker-1".
	Source string
	// Lines are the oldest first.
	Lines []string
}

func (e Excerpt) String() string {
	return "The last lines of " + e.Source + ":\n  " + strings.Join(e.Lines, "\n  ")
}

// tailLog are the last lines of the log of a service on a node; none where it
// cannot be read, which is no reason to say less about the rest.
func (e *Engine) tailLog(ctx context.Context, address, service string) []string {
	lines, _ := e.talos.Logs(ctx, address, service, wordsMost)

	return lines
}

// excerpts are what the installer and the node have to say about an upgrade that
// failed. What they say of one that was cut off explains nothing.
func (u *nodeUpgrade) excerpts(ctx context.Context, err error) []Excerpt {
	var found []Excerpt

	var installer *installerError
	if errors.As(err, &installer) && len(installer.output) > 0 {
		found = append(found, Excerpt{Source: "the installer on " + u.step.Node, Lines: installer.output})
	}

	if ctx.Err() != nil || !u.speaks(err) {
		return found
	}

	words := u.logTail
	if len(words) == 0 {
		bounded, cancel := u.run.engine.cleanupContext(ctx)
		defer cancel()

		words = u.run.engine.tailLog(bounded, u.step.Address, serviceMachined)
	}

	if len(words) > 0 {
		found = append(found, Excerpt{Source: "the log of machined on " + u.step.Node, Lines: words})
	}

	return found
}

// speaks tells whether the node itself is why its upgrade failed.
func (u *nodeUpgrade) speaks(err error) bool {
	// The log of a boot that failed is gone with it.
	if errors.Is(err, ErrFallback) || errors.Is(err, ErrRolledBack) {
		return len(u.logTail) > 0
	}

	for _, own := range []error{ErrInstaller, ErrUnhealthy, ErrNeverReturned} {
		if errors.Is(err, own) {
			return true
		}
	}

	// It runs the new system and did not get into service with it.
	return u.pending && u.rebooted() && !u.runs.IsZero() && u.runs.Equal(u.entry.Target) && !errors.Is(err, ErrLeaseLost)
}

// excerpts are what the kubelet says where it was to run something new.
func (c *componentUpgrade) excerpts(ctx context.Context) []Excerpt {
	if ctx.Err() != nil || !c.arrived {
		return nil
	}

	bounded, cancel := c.run.engine.cleanupContext(ctx)
	defer cancel()

	lines := c.run.engine.tailLog(bounded, c.step.Address, serviceKubelet)
	if len(lines) == 0 {
		return nil
	}

	return []Excerpt{{Source: "the log of the kubelet on " + c.step.Node, Lines: lines}}
}
