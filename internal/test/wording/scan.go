// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Text is something in the sources that people may read, with gaps for what is only
// known when the code runs.
type Text struct {
	// At is the file and the line.
	At string
	// Said is the text, with … for the gaps.
	Said string

	pattern *regexp.Regexp
}

// In tells whether the entry shows it.
func (t Text) In(said Entry) bool { return t.pattern.MatchString(said.text()) }

// lettersLeast is how many letters a text needs to be told from others.
const lettersLeast = 6

// spoken are the fields of failures and findings that people read.
var spoken = [...]string{"Summary", "Seen", "State", "Remedy", "Found"}

// Scan finds the texts in packages below internal of the module at the root.
func Scan(root string, names []string) ([]Text, error) {
	patterns := make([]string, 0, len(names))
	for _, name := range names {
		patterns = append(patterns, "./internal/"+name)
	}

	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}

	loaded, err := packages.Load(&packages.Config{
		Dir: absolute, Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile,
	}, patterns...)
	if err != nil {
		return nil, err
	}

	var texts []Text

	for _, one := range loaded {
		for _, problem := range one.Errors {
			return nil, fmt.Errorf("%s: %w", one.PkgPath, problem)
		}

		texts = append(texts, scanned(one, absolute)...)
	}

	if len(texts) == 0 {
		return nil, errors.New("no text was found in " + strings.Join(names, ", "))
	}

	slices.SortFunc(texts, func(a, b Text) int { return strings.Compare(a.At+a.Said, b.At+b.Said) })

	return slices.CompactFunc(texts, func(a, b Text) bool { return a.At == b.At && a.Said == b.Said }), nil
}

// scanned are the texts of a package.
func scanned(of *packages.Package, root string) []Text {
	read := &reader{of: of, root: root, seen: map[ast.Node]bool{}, asked: map[types.Object]bool{}}
	read.index()

	for _, file := range of.Syntax {
		ast.Inspect(file, func(node ast.Node) bool {
			for _, expression := range read.roots(node) {
				read.expression(expression)
			}

			return true
		})
	}

	return read.texts
}

// roots are the expressions of a node that become a part of what people read.
func (r *reader) roots(node ast.Node) []ast.Expr {
	switch node := node.(type) {
	case *ast.CompositeLit:
		return r.fields(node)
	case *ast.AssignStmt:
		return r.assigned(node)
	case *ast.CallExpr:
		return r.diagnostic(node)
	default:
		return nil
	}
}

// fields are the values of the fields that people read.
func (r *reader) fields(literal *ast.CompositeLit) []ast.Expr {
	if !speaks(r.of.TypesInfo.TypeOf(literal)) {
		return nil
	}

	var values []ast.Expr

	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}

		if name, ok := pair.Key.(*ast.Ident); ok && slices.Contains(spoken[:], name.Name) {
			values = append(values, pair.Value)
		}
	}

	return values
}

// assigned are values that are given to such fields later.
func (r *reader) assigned(statement *ast.AssignStmt) []ast.Expr {
	var values []ast.Expr

	for index, left := range statement.Lhs {
		field, ok := left.(*ast.SelectorExpr)
		if !ok || !slices.Contains(spoken[:], field.Sel.Name) || !speaks(r.of.TypesInfo.TypeOf(field.X)) {
			continue
		}

		switch {
		case len(statement.Rhs) == len(statement.Lhs):
			values = append(values, statement.Rhs[index])
		default:
			r.results(statement.Rhs[0], index)
		}
	}

	return values
}

// diagnostic are the texts that a diagnostic of the framework is made of.
func (r *reader) diagnostic(call *ast.CallExpr) []ast.Expr {
	called, ok := r.callee(call).(*types.Func)
	if !ok || called.Pkg() == nil || called.Pkg().Path() != "github.com/hashicorp/terraform-plugin-framework/diag" {
		return nil
	}

	name := called.Name()
	if !strings.HasSuffix(name, "Diagnostic") && !strings.HasPrefix(name, "Add") {
		return nil
	}

	return slices.DeleteFunc(slices.Clone(call.Args), func(argument ast.Expr) bool { return !isText(r.of.TypesInfo.TypeOf(argument)) })
}

// speaks tells whether the type is that of a failure or a finding.
func speaks(of types.Type) bool {
	if pointer, ok := of.(*types.Pointer); ok {
		of = pointer.Elem()
	}

	named, ok := of.(*types.Named)
	if !ok {
		return false
	}

	return named.Obj().Name() == "Failure" || named.Obj().Name() == "Finding"
}

func isText(of types.Type) bool {
	basic, ok := of.Underlying().(*types.Basic)

	return ok && basic.Info()&types.IsString != 0
}

// position is where a node is, for people.
func (r *reader) position(node ast.Node) string {
	at := r.of.Fset.Position(node.Pos())

	name, err := filepath.Rel(r.root, at.Filename)
	if err != nil {
		name = at.Filename
	}

	return fmt.Sprintf("%s:%d", filepath.ToSlash(name), at.Line)
}
