// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"regexp"
	"strings"

	"google.golang.org/grpc/status"
)

// keptProblems is how many problems of a refused configuration are passed on.
const keptProblems = 3

// problemCount is the first line of a list of problems, which follow as
// bullets.
var problemCount = regexp.MustCompile(`[0-9]+ errors? occurred:\s*$`)

// withoutConfig is the answer of a node to a configuration, without anything
// that may be part of it: a node appends the difference to the one it has,
// secrets included, and quotes values. The answer of gRPC is replaced as a whole, so
// that nobody finds the text as the cause of an error.
func withoutConfig(err error) error {
	answer, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}

	return status.Error(answer.Code(), withoutContent(answer.Message()))
}

func withoutContent(text string) string {
	text, _, _ = strings.Cut(text, "diff:")
	first, rest, _ := strings.Cut(text, "\n")
	kept := []string{first}

	if problemCount.MatchString(first) {
		for line := range strings.Lines(rest) {
			if problem, found := strings.CutPrefix(strings.TrimSpace(line), "* "); found && len(kept) <= keptProblems {
				kept = append(kept, problem)
			}
		}
	}

	plain := withoutQuotes(strings.TrimSpace(strings.Join(kept, " ")))

	// What is left of a quotation that goes on further down.
	if cut := strings.IndexAny(plain, "\"`"); cut >= 0 {
		plain = plain[:cut] + "a value"
	}

	return clip(plain)
}
