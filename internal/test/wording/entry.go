// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Kind is the kind of an entry: the title of the part of a page that shows it.
type Kind string

// The kinds in the order in which a page shows them.
const (
	KindFailure Kind = "Failures of a run"
	KindError   Kind = "Errors"
	KindWarning Kind = "Warnings"
	KindFinding Kind = "Findings of checks"
)

// Entry is a message to a person.
type Entry struct {
	Kind Kind
	// Summary is its first line; for a finding, its check.
	Summary string
	// Detail is the rest.
	Detail string
	// Test is the test that recorded it.
	Test string
}

// text returns the whole message.
func (e Entry) text() string { return e.Summary + "\n" + e.Detail }

// notes has what the tests of this process recorded, by test.
var notes = struct { //nolint:gochecknoglobals // what the tests of a process have in common
	sync.Mutex

	// wanted is true if the notes are compared with a page.
	wanted bool
	byTest map[string]map[Entry]bool
}{byTest: map[string]map[Entry]bool{}}

// Note records a message that was shown while a test ran, and fails the test if it does not have the right shape.
func Note(t testing.TB, said Entry) {
	t.Helper()

	said.Test = t.Name()
	said.Summary, said.Detail = stable(said.Summary), stable(said.Detail)

	for _, problem := range Misshapen(said) {
		t.Errorf("%s: %s\n%s\n%s", said.Kind, problem, said.Summary, said.Detail)
	}

	notes.Lock()
	defer notes.Unlock()

	if !notes.wanted {
		return
	}

	if notes.byTest[said.Test] == nil {
		notes.byTest[said.Test] = map[Entry]bool{}
	}

	notes.byTest[said.Test][said] = true
}

// NoteFindings records findings.
func NoteFindings(t testing.TB, findings []cluster.Finding) {
	t.Helper()

	for _, finding := range findings {
		if finding.Found == "" || finding.Remedy == "" {
			t.Errorf("a finding that says too little: %+v", finding)
		}

		if strings.HasSuffix(finding.Found, ".") {
			t.Errorf("what was found ends with a full stop: %+v", finding)
		}

		Note(t, Entry{Kind: KindFinding, Summary: finding.Check, Detail: finding.String()})
	}
}

// unstable matches what differs from run to run.
var unstable = [...]struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?UTC|Z|[+-]\d\d:\d\d)?`), "<time>"},
	{regexp.MustCompile(`which is as of \d{4}-\d\d-\d\d`), "which is as of <day>"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<uuid>"},
	{regexp.MustCompile(`\b127\.0\.0\.1:\d+`), "<address>"},
	{regexp.MustCompile(`(/[A-Za-z0-9_.-]+)+/Test[A-Za-z0-9_.-]+/\d{3}\b`), "<directory>"},
}

// stable returns the text without what differs from run to run.
func stable(text string) string {
	for _, changing := range unstable {
		text = changing.pattern.ReplaceAllString(text, changing.instead)
	}

	return text
}
