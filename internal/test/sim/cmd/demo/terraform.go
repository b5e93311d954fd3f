// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
)

// commandTimeout bounds one call of Terraform. The roll takes less than a
// minute at the demo's speed.
const commandTimeout = 8 * time.Minute

// terraform runs the command line in the demo's configuration.
type terraform struct {
	space *workspace.Workspace
	name  string
	logs  string
	calls int
}

// diagnostic is a warning or an error.
type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
}

// failedCall is the error of a call that ended with an exit code other than 0.
type failedCall struct {
	what   string
	err    error
	errors []diagnostic
	output []byte
}

func (f *failedCall) Error() string {
	if len(f.errors) == 0 {
		return fmt.Sprintf("%s: %v\n\n%s", f.what, f.err, f.output)
	}

	text := fmt.Sprintf("%s: %v", f.what, f.err)
	for _, one := range f.errors {
		text += "\n\n" + one.Summary + "\n\n" + one.Detail
	}

	return text
}

// run calls Terraform, keeps all of its output in the logs, and returns its warnings. If the exit code is not 0,
// the error is a [*failedCall].
func (t *terraform) run(ctx context.Context, args ...string) ([]diagnostic, error) {
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()

	what := t.name + " " + args[0]

	command := t.space.Command(bounded, append(append(args[:1:1], "-json", "-input=false"), args[1:]...)...)

	var output bytes.Buffer

	command.Stdout, command.Stderr = &output, &output
	err := t.space.Run(command)

	t.calls++

	log := filepath.Join(t.logs, fmt.Sprintf("%d-%s.log", t.calls, args[0]))
	if writing := os.WriteFile(log, output.Bytes(), 0o600); writing != nil {
		return nil, fmt.Errorf("keeping the output of %s: %w", what, writing)
	}

	warnings, failures := diagnostics(output.Bytes())

	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", what, ctx.Err())
	case bounded.Err() != nil:
		return nil, fmt.Errorf("%s did not end within %s", what, commandTimeout)
	case err != nil:
		return warnings, &failedCall{what: what, err: err, errors: failures, output: output.Bytes()}
	default:
		return warnings, nil
	}
}

// diagnostics returns those in an output that has one JSON message per line; other lines are ignored.
func diagnostics(output []byte) (warnings, failures []diagnostic) {
	for line := range bytes.Lines(output) {
		var message struct {
			Diagnostic diagnostic `json:"diagnostic"`
		}

		if json.Unmarshal(line, &message) != nil {
			continue
		}

		switch message.Diagnostic.Severity {
		case "warning":
			warnings = append(warnings, message.Diagnostic)
		case "error":
			failures = append(failures, message.Diagnostic)
		}
	}

	return warnings, failures
}

var (
	plannedNodes = regexp.MustCompile(`^Planned: (Rolling upgrade of \d+ of \d+ nodes?)`)
	plannedStep  = regexp.MustCompile(`(?m)^  \d+ +(\S+) +\S+ +\S+ +\S+ `)
	plannedHop   = regexp.MustCompile(`(?m)^  (?:Hop \d+ of \d+: )?((?:Talos|Kubernetes) \S+ -> \S+)`)
	plannedTime  = regexp.MustCompile(`(?m)^Planned duration: (about [^(.]*[^(. ])`)
)

// planned returns what a plan says about the upgrade: what it is; and from what to what, in which order, and how
// long it may take.
func planned(warnings []diagnostic) (what, how string) {
	for _, one := range warnings {
		for _, what := range all(plannedNodes, one.Summary) {
			return what, fmt.Sprintf("%s, in this order: %s; %s", strings.Join(all(plannedHop, one.Detail), ", "),
				strings.Join(all(plannedStep, one.Detail), ", "), strings.Join(all(plannedTime, one.Detail), ", "))
		}
	}

	return "", ""
}

// all returns the first groups of all matches.
func all(pattern *regexp.Regexp, text string) []string {
	var groups []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		groups = append(groups, match[1])
	}

	return groups
}

// sentenceEnd matches a full stop before a new sentence.
var sentenceEnd = regexp.MustCompile(`\. [A-Z]`)

// essence returns the first sentences of each paragraph.
func essence(detail string) []string {
	const sentences = 2

	var paragraphs []string

	for paragraph := range strings.SplitSeq(detail, "\n\n") {
		ends := sentenceEnd.FindAllStringIndex(paragraph, sentences)
		if len(ends) == sentences {
			paragraph = paragraph[:ends[sentences-1][0]+1] + " [...]"
		}

		paragraphs = append(paragraphs, strings.ReplaceAll(paragraph, "\n", " "))
	}

	return paragraphs
}
