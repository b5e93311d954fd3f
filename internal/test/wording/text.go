// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Text is a literal in the sources that people may read.
type Text struct {
	// At is the file and the line.
	At string
	// Said is the text, with … in place of what fmt fills in.
	Said string

	pattern *regexp.Regexp
}

// In reports whether the entry shows it.
func (t Text) In(said Entry) bool { return t.pattern.MatchString(said.text()) }

// The names around a literal show that people read it: heldBy matches those of the field, the variable, the constant
// or the function that it is for, madeBy that of the call that makes a finding or a diagnostic of it.
var (
	heldBy = regexp.MustCompile(`^(?i:summary)$|(?i:detail|seen|state(?:text)?|remedy|found|advice|cure)$`)
	madeBy = regexp.MustCompile(`(?i)(finding|error(?:at)?|warning|diagnostic|detail|problem|unknown|unusable|matching|parsed|choice)$`)
)

// below returns the packages whose messages are on the page of a package.
func below(name string) []string {
	switch name {
	case "engine":
		return []string{name, "engine/say", "engine/rule", "engine/fact", "engine/permit"}
	case "provider":
		return []string{name, "provider/attribute", "provider/diagnostic", "provider/publication", "provider/releases", "provider/roll"}
	default:
		return []string{name}
	}
}

// Texts returns the texts of a package below internal of the module at the root, and of the packages whose messages
// are on its page.
func Texts(root, name string) ([]Text, error) {
	var files []string

	for _, one := range below(name) {
		found, err := filepath.Glob(filepath.Join(root, "internal", one, "*.go"))
		if err != nil {
			return nil, err
		}

		files = append(files, found...)
	}

	var texts []Text

	inside := filepath.Join(root, "internal") + string(filepath.Separator)

	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		set := token.NewFileSet()

		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}

		take := func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				at := fmt.Sprintf("%s:%d", strings.TrimPrefix(path, inside), set.Position(literal.Pos()).Line)
				texts = append(texts, readText(at, literal.Value)...)
			}

			return true
		}

		ast.Inspect(file, func(node ast.Node) bool {
			for _, part := range spoken(node) {
				ast.Inspect(part, take)
			}

			return true
		})
	}

	slices.SortFunc(texts, func(a, b Text) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Said, b.Said)) })

	return slices.CompactFunc(texts, func(a, b Text) bool { return a.At == b.At && a.Said == b.Said }), nil
}

// spoken returns the parts of the node whose literals people read.
func spoken(node ast.Node) (parts []ast.Node) {
	held := func(by ast.Expr, part ast.Node) {
		if heldBy.MatchString(nameOf(by)) {
			parts = append(parts, part)
		}
	}

	switch node := node.(type) {
	case *ast.KeyValueExpr:
		held(node.Key, node.Value)
	case *ast.AssignStmt:
		for index, by := range node.Lhs {
			held(by, node.Rhs[min(index, len(node.Rhs)-1)])
		}
	case *ast.ValueSpec:
		for index, value := range node.Values {
			held(node.Names[index], value)
		}
	case *ast.FuncDecl:
		held(node.Name, node.Body)
	case *ast.CallExpr:
		if madeBy.MatchString(nameOf(node.Fun)) {
			for _, argument := range node.Args {
				parts = append(parts, argument)
			}
		}
	}

	return parts
}

// nameOf returns the name of what a literal is for; empty for an attribute, whose literals describe it.
func nameOf(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.Ident:
		return expression.Name
	case *ast.SelectorExpr:
		if of, is := expression.X.(*ast.Ident); is && of.Name == "attrname" {
			return ""
		}

		return expression.Sel.Name
	default:
		return ""
	}
}

// verb matches what fmt fills in.
var verb = regexp.MustCompile(`%[-+# 0]*(\[\d+\])?[0-9]*(\.[0-9]+)?[a-zA-Z]`)

// lettersLeast is how many letters, in at least two words, a text needs to be distinguishable.
const lettersLeast = 6

func readText(at, literal string) []Text {
	said, err := strconv.Unquote(literal)
	if err != nil {
		return nil
	}

	// What is filled in at the beginning or the end may be empty.
	said = strings.Trim(verb.ReplaceAllString(strings.ReplaceAll(said, "%%", "%"), "…"), "… \n")

	letters := strings.FieldsFunc(said, func(r rune) bool { return !unicode.IsLetter(r) })
	if len(letters) < 2 || len(strings.Join(letters, "")) < lettersLeast || !strings.Contains(said, " ") {
		return nil
	}

	// The first letter is left out, because it is a capital if it begins a sentence.
	pattern := strings.ReplaceAll(regexp.QuoteMeta(string([]rune(said)[1:])), "…", ".*?")

	return []Text{{At: at, Said: said, pattern: regexp.MustCompile("(?s)" + pattern)}}
}
