// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
)

// operation describes a call to the code that carries it out and to the people
// who read its errors.
type operation struct {
	// what completes "unable to ...".
	what string
	// node is the address of the machine meant; empty for the endpoint itself.
	node string
	// timeout bounds one attempt.
	timeout time.Duration
	// mutates tells that the call must not be made twice by accident.
	mutates bool
	// begun tells of an answer that is handed on as it comes whether some of it
	// was: it cannot be had from another endpoint then. Nil for all others.
	begun func() bool
}

// call carries out the operation through the first endpoint that can. Reads
// try all of them, and once more the one whose connection ended under it, such
// as one that a node had enough of (GOAWAY) or that a firewall forgot. A call that
// changes something moves on only when nothing of it can have reached the node.
func (c *Client) call(ctx context.Context, op operation, do func(context.Context, *client.Client) error) error {
	c.wake(ctx)

	avoid := ""
	if op.mutates {
		avoid = op.node
	}

	var (
		failures  []*callError
		endpoints = c.candidates(avoid)
		severed   bool
	)

	for index := 0; index < len(endpoints); index++ {
		chosen := endpoints[index]
		failure := c.try(ctx, op, chosen, do)
		if failure == nil {
			c.prefer(chosen)

			return nil
		}

		failures = append(failures, failure)

		if ctx.Err() != nil || !failure.elsewhere || op.begun != nil && op.begun() {
			return failure
		}

		if failure.severed && !op.mutates && !severed {
			severed = true
			endpoints = append(endpoints, chosen)
		}
	}

	return c.combine(op, failures)
}

func (c *Client) try(ctx context.Context, op operation, chosen *endpoint, do func(context.Context, *client.Client) error) *callError {
	var noted attempt

	attemptCtx, cancel := context.WithTimeout(withAttempt(ctx, &noted), op.timeout)
	defer cancel()

	if op.node != "" {
		attemptCtx = client.WithNode(attemptCtx, op.node)
	}

	err := do(attemptCtx, chosen.api)
	if err == nil {
		return nil
	}

	// A node ends a call at the caller's deadline by itself, and its answer may be
	// here before the caller's own context has noticed.
	if deadline, bounded := ctx.Deadline(); bounded && !time.Now().Before(deadline) {
		<-ctx.Done()
	}

	failure := c.explain(ctx, op, chosen, noted.sent, err)

	switch {
	case failure.forwarding:
		chosen.local.Store(true)
	case failure.silent && !op.mutates:
		// Silence is the node's, unless the endpoint itself is gone.
		failure.elsewhere = ctx.Err() == nil && !chosen.alive(ctx)
	}

	return failure
}

// combine is the error of an operation that no endpoint could carry out.
func (c *Client) combine(op operation, failures []*callError) error {
	if len(failures) == 1 {
		return failures[0]
	}

	combined := &callError{what: op.what, meanings: failures[0].meanings, cause: failures[0].cause, forwarding: true}

	var (
		details []string
		through = map[string][]string{}
	)

	for _, failure := range failures {
		through[failure.said] = append(through[failure.said], failure.through)
	}

	for _, failure := range failures {
		detail := failure.detail
		if failure.said != "" {
			// What several endpoints say is said once.
			detail = failure.said + throughEndpoints(through[failure.said]...)
		}

		if !slices.Contains(details, detail) {
			details = append(details, detail)
		}

		combined.forwarding = combined.forwarding && failure.forwarding

		if c.weightier(failure, combined.meanings) {
			combined.meanings, combined.cause = failure.meanings, failure.cause
		}
	}

	combined.detail = strings.Join(details, "; ")

	return combined
}
