// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"go/ast"    //nolint:depguard // of the standard library, though the linter does not know it
	"go/parser" //nolint:depguard // of the standard library, though the linter does not know it
	"go/token"  //nolint:depguard // of the standard library, though the linter does not know it
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
)

// sayings are all sentences that the checker can say, as its sources have them,
// and what has been heard of it.
type sayings struct {
	invariants []checker.Invariant
	// sentences are formats, parts of a sentence are texts that stand in one.
	sentences, parts []string

	mu         sync.Mutex
	violations []checker.Violation
}

// newSayings reads the sources of the checker.
func newSayings(t *testing.T) *sayings {
	t.Helper()

	made := &sayings{}
	files := token.NewFileSet()
	err := filepath.WalkDir(filepath.Join("..", "test", "sim", "checker"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(files, path, nil, 0)
		if err == nil {
			ast.Inspect(file, made.learn)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	if len(made.invariants) < 14 || len(made.sentences) < 40 || len(made.parts) < 10 {
		t.Fatalf("read %d invariants, %d sentences and %d parts of sentences from the checker; it has more",
			len(made.invariants), len(made.sentences), len(made.parts))
	}

	return made
}

// learn takes in one piece of a source.
func (s *sayings) learn(piece ast.Node) bool {
	switch piece := piece.(type) {
	case *ast.ValueSpec:
		if kind, is := piece.Type.(*ast.Ident); is && kind.Name == "Invariant" {
			for _, value := range piece.Values {
				s.invariants = append(s.invariants, checker.Invariant(strings.Join(texts(value), "")))
			}
		}
	case *ast.CallExpr:
		if called, is := piece.Fun.(*ast.SelectorExpr); is && called.Sel.Name == "violate" {
			s.sentences = append(s.sentences, texts(piece.Args[2])...)
		}
	case *ast.CompositeLit:
		if kind, is := piece.Type.(*ast.Ident); is && kind.Name == "hazard" {
			s.parts = append(s.parts, phrases(texts(piece))...)
		}
	case *ast.FuncDecl:
		// What its map makes of a fault ends such a sentence.
		if piece.Name.Name == "unsafeEffects" {
			s.parts = append(s.parts, phrases(texts(piece.Body))...)
		}
	}

	return true
}

// texts are the string literals in a piece of source.
func texts(piece ast.Node) []string {
	var found []string

	ast.Inspect(piece, func(part ast.Node) bool {
		literal, is := part.(*ast.BasicLit)
		if !is || literal.Kind != token.STRING {
			return true
		}

		if text, err := strconv.Unquote(literal.Value); err == nil {
			found = append(found, text)
		}

		return true
	})

	return found
}

// phrases are the texts of more than one word; keys and formats are none.
func phrases(texts []string) []string {
	return slices.DeleteFunc(texts, func(text string) bool {
		return !strings.Contains(strings.TrimSpace(text), " ") || strings.Contains(text, "%")
	})
}

// heard notes what the checker said.
func (s *sayings) heard(said []checker.Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.violations = append(s.violations, said...)
}

// complete fails the test unless every invariant was seen to be broken, and every
// sentence was said.
func (s *sayings) complete(t *testing.T) {
	t.Helper()

	said := func(is func(checker.Violation) bool) bool { return slices.ContainsFunc(s.violations, is) }

	for _, invariant := range s.invariants {
		if !said(func(v checker.Violation) bool { return v.Invariant == invariant }) {
			t.Errorf("no planted bug breaks %s", invariant)
		}
	}

	for _, sentence := range s.sentences {
		pattern := patternOf(sentence)
		if !said(func(v checker.Violation) bool { return pattern.MatchString(v.What) }) {
			t.Errorf("no planted bug makes the checker say %q", sentence)
		}
	}

	for _, part := range s.parts {
		if !said(func(v checker.Violation) bool { return strings.Contains(v.What, part) }) {
			t.Errorf("no planted bug makes the checker say something with %q", part)
		}
	}

	if t.Failed() {
		return
	}

	t.Logf("%d invariants, %d sentences and %d parts of sentences of the checker, each said of a planted bug",
		len(s.invariants), len(s.sentences), len(s.parts))
}

// patternOf matches what a format may become.
func patternOf(format string) *regexp.Regexp {
	verb := regexp.MustCompile(`%[-+.0-9]*[a-z]`)
	parts := verb.Split(format, -1)

	for index, part := range parts {
		parts[index] = regexp.QuoteMeta(part)
	}

	return regexp.MustCompile("^" + strings.Join(parts, ".+") + "$")
}
