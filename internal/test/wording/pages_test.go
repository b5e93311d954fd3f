// SPDX-License-Identifier: MPL-2.0

package wording_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// root is the root of the module, from here.
const root = "../../.."

// speakers returns the packages below internal that word what people read.
func speakers() []string {
	return []string{"engine", "health", "plan", "provider", "provider/connection"}
}

// shown returns the entries of all pages.
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

// texts returns what people may read according to the sources.
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

// TestEveryTextIsShown wants each failure, finding, diagnostic and error text to be produced by a test and to be on a
// page.
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

// TestNothingIsShownThatNobodySays wants everything that is on a page to be in the sources.
func TestNothingIsShownThatNobodySays(t *testing.T) {
	t.Parallel()

	all := texts(t)

	for _, said := range shown(t) {
		if !slices.ContainsFunc(all, func(text wording.Text) bool { return text.In(said) }) {
			t.Errorf("%s shows what is in no source: %s", said.Test, said.Summary)
		}
	}
}

// golden returns the directories, from the root of the module, of files that show what people read: pages, reports,
// outputs of the demo, and the documentation with its examples.
func golden() []string { return []string{"README.md", "docs", "examples", "internal", "templates"} }

// TestGoldenFilesAreInWords wants none of them to show Go's own text for the end of a context.
func TestGoldenFilesAreInWords(t *testing.T) {
	t.Parallel()

	var read int

	for _, under := range golden() {
		err := filepath.WalkDir(filepath.Join(root, under), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}

			// The tests beside the sources check the sources.
			if under == "internal" && !strings.Contains(filepath.ToSlash(path), "/testdata/") {
				return nil
			}

			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}

			read++

			if found := wording.GoText(string(text)); found != "" {
				t.Errorf("%s says %q as Go does", path, found)
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	if read == 0 {
		t.Error("there are no golden files")
	}
}

// TestGoTextIsFound wants Go's text to be found in every spelling, but not in the log of a node, which is quoted.
func TestGoTextIsFound(t *testing.T) {
	t.Parallel()

	for _, said := range []string{
		"unable to read the node: context deadline exceeded",
		"Context canceled.",
		"rpc error: code = DeadlineExceeded desc = late",
		"net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
		"dial tcp 10.5.0.2:6443: operation was canceled",
		"client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline",
	} {
		if wording.GoText(said) == "" {
			t.Errorf("%q passes", said)
		}
	}

	if found := wording.GoText("The last lines of the installer on worker-1:\n  error getting Talos version: context deadline exceeded"); found != "" {
		t.Errorf("%q is found in a log", found)
	}
}
