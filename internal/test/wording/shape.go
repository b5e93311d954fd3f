// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// summaryMost is how long a summary may be, in characters: with the names of a node and a cluster it still fits on a
// line.
const summaryMost = 120

// foreign matches what only the author of the code could understand, and what nobody may read.
var foreign = [...]struct {
	pattern *regexp.Regexp
	is      string
}{
	{regexp.MustCompile(`%![a-zA-Z(]`), "a verb of a format that was not filled in"},
	{regexp.MustCompile(`<nil>|\bnil\b`), "a nil"},
	{regexp.MustCompile(`rpc error: code =`), "a bare gRPC status"},
	{regexp.MustCompile(`&?\b[a-z]+\.[A-Z][A-Za-z]+\{|map\[[a-z]+\]|\bmap\[`), "a dump of a value"},
	{regexp.MustCompile(`\b0x[0-9a-f]{6,}`), "an address in memory"},
	{regexp.MustCompile(`-----BEGIN|client-key-data|\bBearer [A-Za-z0-9]`), "a secret"},
	{regexp.MustCompile(`(?m)[ \t]+$`), "a space at the end of a line"},
	{regexp.MustCompile(`[^.]\.\.(\s|$)|[^.]\. \.|,\.`), "a full stop too many"},
}

var (
	// goText matches what Go, gRPC and HTTP print if the context of a call has ended.
	goText = regexp.MustCompile(`(?i)context (?:deadline exceeded|canceled)|\bDeadlineExceeded\b|(?:request|operation was) canceled|` +
		`Client\.Timeout|would exceed context deadline`)
	// quoted matches the lines of a log, which stay as the node wrote them.
	quoted = regexp.MustCompile(`(?m)^ {2,}.*$`)
)

// GoText returns Go's own words for the end of a context, which a message has to replace; empty if the text has none.
// The lines of a log are left out.
func GoText(text string) string {
	return goText.FindString(quoted.ReplaceAllString(text, ""))
}

// NoteLine fails the test if a passing message, such as a line of an action or the text of an event, has Go's own
// words in it.
func NoteLine(t testing.TB, text string) {
	t.Helper()

	if found := GoText(text); found != "" {
		t.Errorf("it says %q as Go does: %s", found, text)
	}
}

// Misshapen returns what is wrong with the shape of a message.
func Misshapen(said Entry) []string {
	var problems []string

	for _, one := range foreign {
		if found := one.pattern.FindString(said.text()); found != "" {
			problems = append(problems, fmt.Sprintf("it holds %s: %q", one.is, found))
		}
	}

	if found := GoText(said.text()); found != "" {
		problems = append(problems, fmt.Sprintf("it holds an error text of Go: %q", found))
	}

	if said.Kind == KindFinding {
		return problems
	}

	switch {
	case said.Summary == "" || strings.TrimSpace(said.Summary) != said.Summary || strings.Contains(said.Summary, "\n"):
		problems = append(problems, "the summary is not one line")
	case strings.HasSuffix(said.Summary, "."):
		problems = append(problems, "the summary ends with a full stop")
	case len([]rune(said.Summary)) > summaryMost:
		problems = append(problems, fmt.Sprintf("the summary has more than %d characters", summaryMost))
	case said.Summary[0] < 'A' || said.Summary[0] > 'Z':
		problems = append(problems, "the summary does not begin with a capital")
	}

	if said.Detail == "" {
		return append(problems, "there is no detail")
	}

	return append(problems, unhelpful(said)...)
}

// imperative matches how an instruction begins, or the name of a command.
var imperative = regexp.MustCompile(`(?i)(?:^|[.;:,)!?\n]\s*|\b(?:then|and|or|please|first|to go on|to give up|to continue|by itself)[, ]+|` + "`" + `)` +
	`(?:do not |only |just )?(?:` + strings.Join(verbs[:], "|") + `)\b|\b(?:kubectl|talosctl|terraform) [a-z]`)

// allowed matches text that says which values are allowed, which is the remedy for a wrong value.
var allowed = regexp.MustCompile(`\b(want|must|allowed are|cannot be specified when)\b`)

// tidings are the beginnings of warnings that only inform.
var tidings = [...]string{"Planned: ", "Destroying changes nothing on the nodes", "Worth knowing about what was done"}

var verbs = [...]string{
	"add", "allow", "apply", "ask", "bring", "check", "choose", "clear", "compare", "correct", "cure", "drop", "edit", "find", "finish", "fix", "follow", "free", "get", "give",
	"grow", "have", "import", "invoke", "keep", "leave", "let", "limit", "look", "make", "move", "name", "provide", "pick", "point", "put", "raise", "read", "reboot", "remove", "renew", "repair",
	"replace", "report", "restore", "run", "save", "say", "see", "set", "shorten", "skip", "split", "spread", "start", "stop", "take", "tell", "turn", "uncordon", "update", "upgrade",
	"use", "wait", "write",
}

// unhelpful returns an error if the message does not say what to do.
func unhelpful(said Entry) []string {
	if said.Kind == KindWarning && slices.ContainsFunc(tidings[:], func(begin string) bool { return strings.HasPrefix(said.Summary, begin) }) {
		return nil
	}

	if !imperative.MatchString(said.Detail) && !(said.Kind == KindError && allowed.MatchString(said.Detail)) {
		return []string{"it does not say what to do"}
	}

	return nil
}
