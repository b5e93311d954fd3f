// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/tools/go/packages"
)

// reader follows expressions to the texts that they are made of.
type reader struct {
	of   *packages.Package
	root string
	// seen are the expressions that were followed, and asked the variables and
	// functions.
	seen  map[ast.Node]bool
	asked map[types.Object]bool
	// made are the functions of the package, values what is assigned to each
	// variable, and calls where each function is called.
	made   map[types.Object]*ast.FuncDecl
	values map[types.Object][]source
	calls  map[types.Object][]*ast.CallExpr
	// parameters tells of which function a parameter is, and which one.
	parameters map[types.Object]parameter

	texts []Text
}

// source is a value of a variable: the result of that number of an expression.
type source struct {
	expression ast.Expr
	result     int
}

type parameter struct {
	of    types.Object
	index int
}

// index looks at what is declared and called where.
func (r *reader) index() {
	r.made, r.values = map[types.Object]*ast.FuncDecl{}, map[types.Object][]source{}
	r.calls, r.parameters = map[types.Object][]*ast.CallExpr{}, map[types.Object]parameter{}

	for _, file := range r.of.Syntax {
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				r.declared(node)
			case *ast.AssignStmt:
				for index, left := range node.Lhs {
					r.valued(left, node.Rhs, index)
				}
			case *ast.ValueSpec:
				for index, name := range node.Names {
					r.valued(name, node.Values, index)
				}
			case *ast.CallExpr:
				if called := r.callee(node); called != nil {
					r.calls[called] = append(r.calls[called], node)
				}
			}

			return true
		})
	}
}

func (r *reader) declared(function *ast.FuncDecl) {
	object := r.of.TypesInfo.Defs[function.Name]
	r.made[object] = function
	index := 0

	for _, field := range function.Type.Params.List {
		for _, name := range field.Names {
			r.parameters[r.of.TypesInfo.Defs[name]] = parameter{of: object, index: index}
			index++
		}
	}
}

func (r *reader) valued(left ast.Expr, right []ast.Expr, index int) {
	name, ok := left.(*ast.Ident)
	if !ok || len(right) == 0 {
		return
	}

	object := r.of.TypesInfo.ObjectOf(name)

	if index < len(right) {
		r.values[object] = append(r.values[object], source{expression: right[index]})

		return
	}

	r.values[object] = append(r.values[object], source{expression: right[0], result: index})
}

// callee is what a call calls.
func (r *reader) callee(call *ast.CallExpr) types.Object {
	switch called := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return r.of.TypesInfo.ObjectOf(called)
	case *ast.SelectorExpr:
		return r.of.TypesInfo.ObjectOf(called.Sel)
	default:
		return nil
	}
}

// expression takes what the expression says, and follows what it is made of.
func (r *reader) expression(of ast.Expr) {
	if r.seen[of] {
		return
	}

	r.seen[of] = true
	r.take(of, r.pieces(of))
}

// gap is in pieces for what is only known when the code runs.
const gap = "\x00"

// pieces is the text of an expression, with gaps. What fills a gap is followed.
func (r *reader) pieces(of ast.Expr) string {
	of = ast.Unparen(of)

	if known := r.of.TypesInfo.Types[of].Value; known != nil && known.Kind() == constant.String {
		return constant.StringVal(known)
	}

	switch of := of.(type) {
	case *ast.BinaryExpr:
		if of.Op == token.ADD {
			return r.pieces(of.X) + r.pieces(of.Y)
		}
	case *ast.Ident:
		r.variable(r.of.TypesInfo.ObjectOf(of))
	case *ast.CallExpr:
		return r.called(of)
	}

	return gap
}

// variable follows what a variable may hold.
func (r *reader) variable(of types.Object) {
	if of == nil || r.asked[of] || !isText(of.Type()) {
		return
	}

	r.asked[of] = true

	for _, value := range r.values[of] {
		r.result(value)
	}

	if given, ok := r.parameters[of]; ok {
		for _, call := range r.calls[given.of] {
			if given.index < len(call.Args) {
				r.expression(call.Args[given.index])
			}
		}
	}
}

func (r *reader) result(of source) {
	if call, ok := ast.Unparen(of.expression).(*ast.CallExpr); ok {
		if results, ok := r.of.TypesInfo.TypeOf(call).(*types.Tuple); ok && results.Len() > of.result {
			r.results(call, of.result)

			return
		}
	}

	r.expression(of.expression)
}

// verb is what fmt fills in.
var verb = regexp.MustCompile(`%[-+# 0]*(\[\d+\])?[0-9]*(\.[0-9]+)?[a-zA-Z]`)

// called is the text of what a call returns.
func (r *reader) called(call *ast.CallExpr) string {
	object := r.callee(call)
	if object == nil {
		return gap
	}

	if object.Pkg() != nil && object.Pkg().Path() == "fmt" && object.Name() == "Sprintf" {
		format := r.pieces(call.Args[0])

		for _, argument := range call.Args[1:] {
			if isText(r.of.TypesInfo.TypeOf(argument)) {
				r.expression(argument)
			}
		}

		return strings.ReplaceAll(verb.ReplaceAllString(strings.ReplaceAll(format, "%%", "\x01"), gap), "\x01", "%")
	}

	r.results(call, 0)

	return gap
}

// results follows the result of that number of a function of the package.
func (r *reader) results(of ast.Expr, index int) {
	call, ok := ast.Unparen(of).(*ast.CallExpr)
	if !ok {
		return
	}

	object := r.callee(call)

	function := r.made[object]
	if function == nil || function.Body == nil {
		// Something that makes a text out of others, such as strings.TrimSuffix.
		for _, argument := range call.Args {
			if object != nil && object.Pkg() != nil && object.Pkg().Path() == "strings" && isText(r.of.TypesInfo.TypeOf(argument)) {
				r.expression(argument)
			}
		}

		return
	}

	ast.Inspect(function.Body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if index < len(node.Results) && isText(r.of.TypesInfo.TypeOf(node.Results[index])) {
				r.expression(node.Results[index])
			}
		}

		return true
	})
}

// take keeps a text that says enough to be told from others.
func (r *reader) take(of ast.Expr, pieces string) {
	letters := 0

	for _, character := range pieces {
		if unicode.IsLetter(character) {
			letters++
		}
	}

	if letters < lettersLeast || !strings.Contains(strings.Trim(pieces, gap+" "), " ") {
		return
	}

	// What fills a gap at an end may be nothing.
	parts := strings.Split(strings.Trim(pieces, gap+" \n"), gap)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}

	// A sentence may begin with it.
	pattern := "(?s)" + strings.Join(parts, ".*?")
	if first := parts[0]; first != "" && unicode.IsLetter(rune(first[0])) {
		pattern = "(?s)(?i:" + first[:1] + ")" + first[1:] + strings.TrimPrefix(pattern, "(?s)"+first)
	}

	r.texts = append(r.texts, Text{
		At: r.position(of), Said: strings.ReplaceAll(strings.TrimSpace(pieces), gap, "…"), pattern: regexp.MustCompile(pattern),
	})
}
