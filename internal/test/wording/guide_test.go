// SPDX-License-Identifier: MPL-2.0

package wording_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// guide is the page on which people look up an error.
var guide = filepath.Join(root, "templates", "guides", "when-an-upgrade-fails.md.tmpl")

var (
	codeOf = regexp.MustCompile("`([^`\n]+)`")
	holeOf = regexp.MustCompile(`<[a-z]+>`)
)

// spokenOf returns what the guide quotes, as patterns and as words. In a pattern, <node> matches anything, text in
// square brackets may be missing, and the name of a cluster may follow.
func spokenOf(t *testing.T) (patterns []*regexp.Regexp, words []string) {
	t.Helper()

	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}

	for _, match := range codeOf.FindAllStringSubmatch(string(text), -1) {
		words = append(words, match[1])

		// A placeholder alone would match everything.
		if strings.TrimSpace(holeOf.ReplaceAllString(match[1], "")) == "" {
			continue
		}

		pattern := holeOf.ReplaceAllString(regexp.QuoteMeta(match[1]), ".+")
		pattern = strings.NewReplacer(` \[`, "( ", `\]`, ")?").Replace(pattern)

		if compiled, err := regexp.Compile("^" + pattern + `( \(.+\))?$`); err == nil {
			patterns = append(patterns, compiled)
		}
	}

	return patterns, words
}

func TestTheGuideSpeaksOfEverything(t *testing.T) {
	t.Parallel()

	patterns, words := spokenOf(t)

	for _, said := range shown(t) {
		known := slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(said.Summary) })
		if !known && said.Kind != wording.KindFinding {
			t.Errorf("%s does not speak of the %s %q", guide, said.Kind, said.Summary)
		}

		if said.Kind == wording.KindFinding && !slices.Contains(words, said.Summary) {
			t.Errorf("%s does not speak of the check %s", guide, said.Summary)
		}
	}

	for _, check := range cluster.Checks() {
		if !slices.Contains(words, check.Name) {
			t.Errorf("%s does not speak of the check %s", guide, check.Name)
		}

		if skippable := strings.Contains(string(read(t, guide)), "`"+check.Name+"`*"); skippable != (check.Firm == "") {
			t.Errorf("%s says that skipping %s is possible: %t", guide, check.Name, skippable)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return text
}
