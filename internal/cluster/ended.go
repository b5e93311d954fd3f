// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"errors"
	"regexp"
	"time"
)

// These texts replace what Go prints for a cancelled context and for an exceeded deadline.
const (
	interrupted = "it was interrupted"
	unanswered  = "no answer in time"
)

// endedError is the end of a context, or an error caused by it, with a text for people.
type endedError struct {
	text  string
	cause error
}

func (e *endedError) Error() string { return e.text }

// Unwrap returns the original error: context.Canceled, context.DeadlineExceeded, or an error that may wrap
// either.
func (e *endedError) Unwrap() error { return e.cause }

// Timeout reports whether the deadline was exceeded; libraries look for this method, which is that of
// [net.Error].
func (e *endedError) Timeout() bool { return errors.Is(e.cause, context.DeadlineExceeded) }

// Ended returns why the context ended, in words for people, or nil if it has not ended. The error wraps
// context.Canceled or context.DeadlineExceeded, unless the context has a cause of its own, which is returned as
// it is.
func Ended(ctx context.Context) error { return Worded(context.Cause(ctx)) }

// Late returns an error with the given text, such as "no answer within 10s", to use as the cause of a context
// whose deadline was exceeded. It wraps context.DeadlineExceeded.
func Late(text string) error { return &endedError{text: text, cause: context.DeadlineExceeded} }

// Unanswered is [Late] with the text for a call that was not answered within the limit.
func Unanswered(limit time.Duration) error { return Late("no answer within " + limit.String()) }

// These expressions match what Go, gRPC and HTTP print for the end of a context.
var (
	deadlineExceeded = regexp.MustCompile(`(?i)(?:net/http: |http: )?\b(?:(?:client )?rate limiter Wait returned an error: )?` +
		`(?:request canceled(?: while waiting for connection)? \(Client\.Timeout exceeded while awaiting headers\)|` +
		`context deadline exceeded(?: \(Client\.Timeout[^)]*\))?|rate: Wait\(n=\d+\) would exceed context deadline)`)
	canceled = regexp.MustCompile(`(?i)(?:net/http: |http: )?\b(?:(?:client )?rate limiter Wait returned an error: )?` +
		`(?:context canceled|operation was canceled)|net/http: request canceled(?: while waiting for connection)?`)
)

// Plain returns the text with words for people in place of what Go says about the end of a context. It is for
// texts that libraries or other programs have written.
func Plain(text string) string {
	return canceled.ReplaceAllString(deadlineExceeded.ReplaceAllString(text, unanswered), interrupted)
}

// Worded returns the error with words for people in place of what its text says about the end of a context. An
// error whose text does not mention that, and nil, are returned as they are. It is for errors of libraries, which
// wrap that of a context.
func Worded(err error) error {
	if err == nil {
		return nil
	}

	text := Plain(err.Error())
	if text == err.Error() {
		return err
	}

	return &endedError{text: text, cause: err}
}
