// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"errors"
	"regexp"
	"time"
)

// What people read where Go says that a context was canceled, or that its deadline
// was exceeded.
const (
	interrupted = "it was interrupted"
	unanswered  = "no answer in time"
)

// endedError is the end of a context, or an error that tells of it, in words.
type endedError struct {
	text  string
	cause error
}

func (e *endedError) Error() string { return e.text }

// Unwrap is what it words: context.Canceled, context.DeadlineExceeded, or an error that
// may wrap either.
func (e *endedError) Unwrap() error { return e.cause }

// Timeout tells libraries that ask, as [net.Error] has it, that the time was up.
func (e *endedError) Timeout() bool { return errors.Is(e.cause, context.DeadlineExceeded) }

// Ended is why the context ended, in words that people can read; nil while it has not. It
// wraps context.Canceled or context.DeadlineExceeded, unless the context has a cause of
// its own, which is returned as it is.
func Ended(ctx context.Context) error { return Worded(context.Cause(ctx)) }

// Late is the cause of a context whose time is up, in the given words, such as "no answer
// within 10s". It wraps context.DeadlineExceeded.
func Late(text string) error { return &endedError{text: text, cause: context.DeadlineExceeded} }

// Unanswered is [Late] in the words for a call that was not answered within the limit.
func Unanswered(limit time.Duration) error { return Late("no answer within " + limit.String()) }

// How Go, gRPC and HTTP print the end of a context.
var (
	deadlineExceeded = regexp.MustCompile(`(?i)(?:net/http: |http: )?\b(?:(?:client )?rate limiter Wait returned an error: )?` +
		`(?:request canceled(?: while waiting for connection)? \(Client\.Timeout exceeded while awaiting headers\)|` +
		`context deadline exceeded(?: \(Client\.Timeout[^)]*\))?|rate: Wait\(n=\d+\) would exceed context deadline)`)
	canceled = regexp.MustCompile(`(?i)(?:net/http: |http: )?\b(?:(?:client )?rate limiter Wait returned an error: )?` +
		`(?:context canceled|operation was canceled)|net/http: request canceled(?: while waiting for connection)?`)
)

// Plain is a text with words for what Go says about the end of a context. It is for what
// others have put into their texts.
func Plain(text string) string {
	return canceled.ReplaceAllString(deadlineExceeded.ReplaceAllString(text, unanswered), interrupted)
}

// Worded is the error with words for what its text says about the end of a context; one
// that says nothing of it, and nil, are returned as they are. It is for the errors of
// libraries, which wrap that of a context.
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
