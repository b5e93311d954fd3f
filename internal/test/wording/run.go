// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// Runner runs the tests of a package and compares what they recorded with its page.
type Runner struct {
	// Name is the path of the package from internal.
	Name string
	// Varies is true if the order of events, and with it the messages of a test, differs from run to run, so that the
	// page is not compared.
	Varies bool
	// Last matches tests whose messages are shown only if no other test has them, because they differ most from run
	// to run; nil matches none.
	Last *regexp.Regexp
	// Tests are the tests that run.
	Tests *testing.M
	// Update is the flag for writing the page. It is read after the tests ran.
	Update *bool
}

// Run implements goleak.TestingM.
func (r Runner) Run() int {
	notes.Lock()
	notes.wanted = true
	notes.Unlock()

	code := r.Tests.Run()
	if code != 0 {
		return code
	}

	var err error

	switch {
	case *r.Update:
		err = r.write()
	case !r.Varies:
		err = r.compare()
	}

	if err != nil {
		fmt.Fprintf(os.Stderr, "what people read (package wording): %v\n", err)

		return 1
	}

	return code
}

// root returns the root of the module, from a package below internal.
func (r Runner) root() string {
	depth, _ := filepath.Rel(filepath.Join("internal", r.Name), ".")

	return depth
}

// whole reports whether all tests ran in full.
func whole() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if given := flag.Lookup(name); given != nil && given.Value.String() != "" {
			return false
		}
	}

	return !testing.Short() && !raced()
}

// raced reports whether the race detector is on, with which some tests do less, or nothing.
func raced() bool {
	built, ok := debug.ReadBuildInfo()

	return ok && slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

var numbers = regexp.MustCompile(`\d+`)

// gone reports whether a test that ran no longer produces an entry of the page. If r.Varies is true, the numbers in
// it may differ.
func (r Runner) gone(shown Entry) bool {
	noted, ran := notes.byTest[shown.Test]
	if noted[shown] || !ran && !whole() {
		return false
	}

	for said := range noted {
		if r.Varies && numbers.ReplaceAllString(said.text(), "") == numbers.ReplaceAllString(shown.text(), "") {
			return false
		}
	}

	return true
}

// compare returns an error if a test did not record what the page shows.
func (r Runner) compare() error {
	shown, err := ReadPage(filepath.Join(r.root(), Page(r.Name)))
	if err != nil || raced() {
		return err
	}

	notes.Lock()
	defer notes.Unlock()

	if at := slices.IndexFunc(shown, r.gone); at >= 0 {
		return fmt.Errorf("%s did not see this any more; if that is wanted, run the tests with -update:\n%s\n%s", shown[at].Test, shown[at].Summary, shown[at].Detail)
	}

	return nil
}

// successor returns the noted entry that replaces one that is gone: the same of another test, or the one of its own
// test under the same summary with the most words in common.
func successor(of Entry, noted []Entry) (Entry, bool) {
	if len(noted) == 0 {
		return Entry{}, false
	}

	words := strings.Fields(of.Detail)
	likeness := func(said Entry) (common int) {
		switch {
		case said.Kind != of.Kind || said.Summary != of.Summary:
			return 0
		case said.Detail == of.Detail:
			return math.MaxInt
		case said.Test != of.Test:
			return 0
		}

		for word := range strings.FieldsSeq(said.Detail) {
			if slices.Contains(words, word) {
				common++
			}
		}

		return common
	}

	best := slices.MaxFunc(noted, func(a, b Entry) int { return cmp.Compare(likeness(a), likeness(b)) })

	return best, likeness(best) > 0
}

// write keeps on the page what is still recorded, or its successor, and adds the shortest entry for each text in the
// sources that nothing on the page shows.
func (r Runner) write() error {
	texts, err := Texts(r.root(), r.Name)
	if err != nil {
		return err
	}

	notes.Lock()
	defer notes.Unlock()

	var noted []Entry
	for _, some := range notes.byTest {
		noted = slices.AppendSeq(noted, maps.Keys(some))
	}

	late := func(said Entry) int {
		if r.Last != nil && r.Last.MatchString(said.Test) {
			return 1
		}

		return 0
	}

	slices.SortFunc(noted, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(late(a), late(b)), cmp.Compare(len(a.Detail), len(b.Detail)), cmp.Compare(a.Test, b.Test), cmp.Compare(a.text(), b.text()))
	})

	page := filepath.Join(r.root(), Page(r.Name))

	// A page that was edited by hand is rewritten.
	before, _ := ReadPage(page)

	var shown []Entry

	for _, said := range before {
		stays := true
		if r.gone(said) {
			said, stays = successor(said, noted)
		}

		if stays && !slices.Contains(shown, said) {
			shown = append(shown, said)
		}
	}

	for _, text := range texts {
		if at := slices.IndexFunc(noted, text.In); at >= 0 && !slices.ContainsFunc(shown, text.In) {
			shown = append(shown, noted[at])
		}
	}

	return os.WriteFile(page, []byte(printed(r.Name, shown)), 0o600)
}
