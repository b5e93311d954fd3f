// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const before = `## 0.2.0 (Unreleased)

FEATURES:

* one

## 0.1.0 (January 2, 2026)

BUG FIXES:

* old
`

const changes = `## 0.2.0 (Unreleased)

BREAKING CHANGES:

* a thing is gone

FEATURES:

* two
`

func TestChangesGoBelowTheirHeadings(t *testing.T) {
	want := `## 0.2.0 (Unreleased)

BREAKING CHANGES:

* a thing is gone

FEATURES:

* one
* two

## 0.1.0 (January 2, 2026)

BUG FIXES:

* old
`

	once, err := merge(before, changes)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, once); diff != "" {
		t.Errorf("changelog (-want +got):\n%s", diff)
	}

	twice, err := merge(once, changes)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(once, twice); diff != "" {
		t.Errorf("a second time (-once +twice):\n%s", diff)
	}
}

func TestNothingToAddChangesNothing(t *testing.T) {
	got, err := merge(before, "## 0.2.0 (Unreleased)\n")
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("changelog (-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeReadIsNotWritten(t *testing.T) {
	for name, test := range map[string]struct{ changelog, changes, want string }{
		"a release that is out": {strings.Replace(before, "Unreleased", "March 3, 2026", 1), changes, errReleased.Error()},
		"no section":            {"Changes\n", changes, errNoSection.Error()},
		"nothing":               {"", changes, errNoSection.Error()},
		"an unknown heading":    {strings.Replace(before, "FEATURES", "NEWS", 1), changes, "NEWS is none of the headings"},
		"prose":                 {strings.Replace(before, "* one", "One day", 1), changes, "is neither a heading"},
		"changes without title": {before, "* two\n", errNoSection.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := merge(test.changelog, test.changes)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, wanted %s; result %q", err, test.want, got)
			}
		})
	}

	if err := run(nil); !errors.Is(err, errUsage) {
		t.Errorf("without arguments: %v", err)
	}
}

// TestChangelogOfTheProject wants the newest section of CHANGELOG.md to be one that changes can be added to, with nothing
// lost, today and once a release has come before it.
func TestChangelogOfTheProject(t *testing.T) {
	text, err := os.ReadFile("../../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}

	for name, changelog := range map[string]string{
		"as it is":        string(text),
		"after a release": "## 99.0.0 (Unreleased)\n\n" + string(text),
		"two sections":    before,
	} {
		newest, rest := split(changelog)

		parsed, err := parse(newest)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if got := parsed.String(); got != newest {
			t.Errorf("%s: it becomes another one (%d bytes follow it):\n%s", name, len(rest), cmp.Diff(newest, got))
		}
	}
}
