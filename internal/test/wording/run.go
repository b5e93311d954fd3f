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

// Runner runs the tests of a package and compares what they noted with its page.
type Runner struct {
	// Name is the package's, from internal.
	Name string
	// Varies tells that the order in which things happen differs from run to run, and
	// with it which words a test brings about, so that the page is not compared.
	Varies bool
	// Last are the names of tests whose words are shown where no others will do,
	// because they differ from run to run the most. Nil is of none.
	Last *regexp.Regexp
	// Tests are what runs.
	Tests *testing.M
	// Update tells whether to write the page; it is asked after the tests ran.
	Update *bool
}

// Run implements what goleak wants to run.
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

// root is the module's directory, from a package below internal.
func (r Runner) root() string {
	depth, _ := filepath.Rel(filepath.Join("internal", r.Name), ".")

	return depth
}

// whole tells whether all tests ran, and as they are meant to.
func whole() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if given := flag.Lookup(name); given != nil && given.Value.String() != "" {
			return false
		}
	}

	return !testing.Short() && !raced()
}

// raced tells whether the race detector is on, with which some tests do less, or nothing.
func raced() bool {
	built, ok := debug.ReadBuildInfo()

	return ok && slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

var numbers = regexp.MustCompile(`\d+`)

// gone tells whether a test that ran does not bring about any more what the page shows;
// where that varies, it may be of other nodes and times.
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

// compare looks for what the page shows in what the tests noted.
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

// successor is what was noted in the place of an entry that is gone: the same of another
// test, or what its own says under the same summary with the most words in common.
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

// write leaves on the page what is noted still, or what was noted in its place, and adds
// the shortest that shows what is new: a text in the sources that nothing on the page shows.
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

	// A page that was edited by hand is put in order.
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
