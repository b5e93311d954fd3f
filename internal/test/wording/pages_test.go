// SPDX-License-Identifier: MPL-2.0

package wording_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
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

// texts are what people may read, by the sources.
func texts(t *testing.T) []wording.Text {
	t.Helper()

	var all []wording.Text

	for _, name := range speakers() {
		some, err := wording.Texts(root, name)
		if err != nil || len(some) == 0 {
			t.Fatalf("%d texts in %s, %v", len(some), name, err)
		}

		all = append(all, some...)
	}

	return all
}

// TestEveryTextIsShown: whoever adds a failure, a finding or a diagnostic, or words an
// error, has a test bring it about, and shows it.
func TestEveryTextIsShown(t *testing.T) {
	t.Parallel()

	entries, all := shown(t), texts(t)

	for _, text := range all {
		if !slices.ContainsFunc(entries, text.In) {
			t.Errorf("%s: no page shows %q", text.At, text.Said)
		}
	}

	for _, check := range cluster.Checks() {
		if !slices.ContainsFunc(entries, func(said wording.Entry) bool { return said.Kind == wording.KindFinding && said.Summary == check.Name }) {
			t.Errorf("no page shows what the check %s finds", check.Name)
		}
	}

	t.Logf("%d texts, %d entries", len(all), len(entries))
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

	all := texts(t)

	for _, said := range shown(t) {
		if !slices.ContainsFunc(all, func(text wording.Text) bool { return text.In(said) }) {
			t.Errorf("%s shows what is in no source: %s", said.Test, said.Summary)
		}
	}
}
