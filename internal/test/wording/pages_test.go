// SPDX-License-Identifier: MPL-2.0

package wording_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// root is the module's directory, from here.
const root = "../../.."

// speakers are the packages below internal that word what people read.
func speakers() []string { return []string{"engine", "health", "plan", "provider"} }

// shown is what the pages show.
func shown(t *testing.T) []wording.Entry {
	t.Helper()

	var all []wording.Entry

	for _, name := range speakers() {
		entries, err := wording.ReadPage(filepath.Join(root, wording.Page(name)))
		if err != nil {
			t.Fatal(err)
		}

		all = append(all, entries...)
	}

	return all
}

// TestEveryTextIsShown: whoever adds a failure, a finding or a diagnostic has a test
// bring it about, and shows it.
func TestEveryTextIsShown(t *testing.T) {
	t.Parallel()

	texts, err := wording.Scan(root, speakers())
	if err != nil {
		t.Fatal(err)
	}

	entries, missing := shown(t), 0

	for _, text := range texts {
		if !slices.ContainsFunc(entries, text.In) {
			missing++

			t.Errorf("%s: no page shows %q", text.At, text.Said)
		}
	}

	t.Logf("%d texts, %d of them not shown, %d entries", len(texts), missing, len(entries))
}

func TestEverythingShownHasTheShape(t *testing.T) {
	t.Parallel()

	for _, said := range shown(t) {
		for _, problem := range wording.Misshapen(said) {
			t.Errorf("%s: %s", said.Summary, problem)
		}
	}
}

// TestNothingIsShownThatNobodySays: what is on a page is in the sources still.
func TestNothingIsShownThatNobodySays(t *testing.T) {
	t.Parallel()

	texts, err := wording.Scan(root, speakers())
	if err != nil {
		t.Fatal(err)
	}

	for _, said := range shown(t) {
		if !slices.ContainsFunc(texts, func(text wording.Text) bool { return text.In(said) }) {
			t.Errorf("%s shows what is in no source: %s", said.Test, said.Summary)
		}
	}
}
