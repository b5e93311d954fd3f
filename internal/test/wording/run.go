// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// Runner runs the tests of a package and compares what they noted with its page.
type Runner struct {
	// Name is the package's, from internal.
	Name string
	// Packages are those whose texts its page has to show, from internal; none is
	// the package itself.
	Packages []string
	// Last are the names of tests whose words are used where no others will do, and
	// may differ from run to run: in which order nodes are named, say. Nil is of none.
	Last *regexp.Regexp
	// Varies tells that in which order things happen differs from run to run, and with
	// it which words a test brings about: those on the page are then compared with the
	// sources alone.
	Varies bool
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

	return !testing.Short() && !raceEnabled
}

// compare looks for what the page shows in what its tests noted. What did not run
// cannot have noted anything.
func (r Runner) compare() error {
	shown, err := ReadPage(filepath.Join(r.root(), Page(r.Name)))
	if err != nil {
		return err
	}

	notes.Lock()
	defer notes.Unlock()

	for _, said := range shown {
		noted, ran := notes.byTest[said.Test]

		switch {
		case r.Last != nil && r.Last.MatchString(said.Test):
			// That its texts are still those of the sources is a test of this package.
		case !ran && whole():
			return fmt.Errorf("%s notes nothing any more; run the tests with -update", said.Test)
		case ran && !noted[said]:
			return fmt.Errorf("%s did not see this any more; if that is wanted, run the tests with -update:\n%s\n%s", said.Test, said.Summary, said.Detail)
		}
	}

	return nil
}

// write chooses, for each text in the sources, what shows it best. What the page
// shows of tests that did not run now stays.
func (r Runner) write() error {
	packages := r.Packages
	if len(packages) == 0 {
		packages = []string{r.Name}
	}

	texts, err := Scan(r.root(), packages)
	if err != nil {
		return err
	}

	notes.Lock()
	defer notes.Unlock()

	var all []Entry
	for _, noted := range notes.byTest {
		all = slices.AppendSeq(all, maps.Keys(noted))
	}

	if shown, err := ReadPage(filepath.Join(r.root(), Page(r.Name))); err == nil && !whole() {
		all = append(all, slices.DeleteFunc(shown, func(said Entry) bool { return notes.byTest[said.Test] != nil })...)
	}

	return os.WriteFile(filepath.Join(r.root(), Page(r.Name)), []byte(printed(r.Name, r.chosen(all, texts))), 0o600)
}

// chosen are the shortest entries that show all texts that can be shown.
func (r Runner) chosen(all []Entry, texts []Text) []Entry {
	late := func(said Entry) int {
		if r.Last != nil && r.Last.MatchString(said.Test) {
			return 1
		}

		return 0
	}

	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(late(a), late(b)), cmp.Compare(len(a.Detail), len(b.Detail)), cmp.Compare(a.Test, b.Test), cmp.Compare(a.text(), b.text()))
	})

	var kept []Entry

	for _, text := range texts {
		if slices.ContainsFunc(kept, text.In) {
			continue
		}

		if at := slices.IndexFunc(all, text.In); at >= 0 {
			kept = append(kept, all[at])
		}
	}

	return kept
}
