// SPDX-License-Identifier: MPL-2.0

package gate

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// maxShown is how much a message repeats of an expression or a value, in characters.
const maxShown = 200

// The variables of an expression.
const (
	varObject  = "object"
	varObjects = "objects"
	varNode    = "node"
)

const (
	// maxCost is how much one evaluation may cost, in CEL's units, in which an access or a comparison costs one. It
	// is what Kubernetes grants one rule (PerCallLimit of k8s.io/apiserver/pkg/apis/cel), and enough for a list of
	// many thousands.
	maxCost = 1_000_000
	// maxAsk is how much all evaluations may cost together if the expression is evaluated for each object: what
	// Kubernetes grants all rules about one object (RuntimeCELCostBudget, as above). The evaluation that exceeds it
	// is still finished.
	maxAsk = 10 * maxCost
	// interruptEvery is after how many steps of a loop the context is checked.
	interruptEvery = 100
	// maxExpr is how long an expression may be, in code points. A message repeats the line at fault.
	maxExpr = 10_000
	// maxIssues is how many errors of one expression a message has.
	maxIssues = 5
)

// expression is a compiled CEL expression.
type expression struct {
	program cel.Program
	literals
	// text is the expression on one line, abbreviated.
	text string
	// each is true if it is evaluated for each object, all if it uses the whole list.
	each, all bool
}

// compile compiles the expression of a gate. Its error is an [*Error].
func compile(text string) (*expression, error) {
	ast, env, err := parse(text)
	if err != nil {
		return nil, err
	}

	if result := ast.OutputType(); !result.IsExactType(cel.BoolType) {
		return nil, notBool(text, result)
	}

	compiled, err := plan(env, ast, text)
	if err != nil {
		return nil, err
	}

	node, err := uses(text, varNode)
	if err != nil {
		return nil, err
	}

	if !compiled.each && !compiled.all && !node {
		return nil, &Error{
			Field: "expr", Found: fmt.Sprintf("the expression uses none of object, objects and node, so that it always gives the same: %s", compiled.text),
			Remedy: "Use object for each object of the query, objects for the list of all of them, or node for the node about to be disturbed.",
		}
	}

	return compiled, nil
}

// compileText compiles what a preset says about an object.
func compileText(text string) (*expression, error) {
	ast, env, err := parse(text)
	if err != nil {
		return nil, err
	}

	return plan(env, ast, text)
}

// parse parses and checks an expression. Its error is an [*Error].
func parse(text string) (*cel.Ast, *cel.Env, error) {
	env, err := environment(varObject, varObjects, varNode)
	if err != nil {
		return nil, nil, broken(err)
	}

	source := common.NewStringSource(text, "expr")

	ast, issues := env.CompileSource(source)
	if issues.Err() != nil {
		return nil, nil, &Error{
			Field: "expr", Found: describe(issues, source),
			Remedy: "Correct the expression. It is CEL over object, which is each object of the query, objects, which is the list of all of them, and node, which is the name of the node about to be disturbed.",
		}
	}

	return ast, env, nil
}

// plan makes a checked expression ready for evaluation.
func plan(env *cel.Env, ast *cel.Ast, text string) (*expression, error) {
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, broken(err)
	}

	compiled := &expression{program: program, literals: newLiterals(ast), text: readable.OneLine(text, maxShown)}

	if compiled.each, err = uses(text, varObject); err != nil {
		return nil, err
	}

	if compiled.all, err = uses(text, varObjects); err != nil {
		return nil, err
	}

	return compiled, nil
}

// environment returns the CEL environment with the given variables.
func environment(variables ...string) (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Sets(), ext.Math(),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxExpr),
		// A wrong literal is then reported at terraform plan, not in the middle of a roll.
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	}

	for _, name := range variables {
		kind := cel.DynType

		switch name {
		case varObjects:
			kind = cel.ListType(cel.DynType)
		case varNode:
			kind = cel.StringType
		}

		options = append(options, cel.Variable(name, kind))
	}

	return cel.NewEnv(options...)
}

// uses reports whether a valid expression uses the variable: whether it does not compile without it. Searching the
// syntax tree for the name would not do, because a macro may have a variable of the same name.
func uses(text, variable string) (bool, error) {
	var others []string

	for _, name := range []string{varObject, varObjects, varNode} {
		if name != variable {
			others = append(others, name)
		}
	}

	env, err := environment(others...)
	if err != nil {
		return false, broken(err)
	}

	_, issues := env.Compile(text)

	return issues.Err() != nil, nil
}

// evaluate evaluates the expression and returns the cost. It stops with the context, and at [maxCost]. Its errors
// do not contain values.
func (e *expression) evaluate(ctx context.Context, variables map[string]any) (value any, cost uint64, err error) {
	// A loop checks the context only now and then.
	if ctx.Err() != nil {
		return nil, 0, cluster.Ended(ctx)
	}

	result, details, err := e.program.ContextEval(ctx, variables)
	if tracked := details.ActualCost(); tracked != nil {
		cost = *tracked
	}

	if err != nil {
		return nil, cost, e.failure(ctx, err)
	}

	return result.Value(), cost, nil
}

// holds evaluates an expression of type bool and returns the cost.
func (e *expression) holds(ctx context.Context, variables map[string]any) (holds bool, cost uint64, err error) {
	value, cost, err := e.evaluate(ctx, variables)
	if err != nil {
		return false, cost, err
	}

	holds, ok := value.(bool)
	if !ok {
		return false, cost, fmt.Errorf("the expression gave a %T, not a bool", value)
	}

	return holds, cost, nil
}

func notBool(text string, result *cel.Type) error {
	problem := &Error{
		Field: "expr", Found: fmt.Sprintf("the expression gives %s, and has to give bool: %s", cel.FormatCELType(result), readable.OneLine(text, maxShown)),
		Remedy: "Compare it with something, as in \"object.spec.replicas == 3\".",
	}

	switch {
	case result.IsExactType(cel.DynType):
		problem.Found = fmt.Sprintf("the expression gives a value of which only the object knows the type, and has to give bool: %s", readable.OneLine(text, maxShown))
		problem.Remedy = "Compare it, as in \"object.spec.paused == true\"."
	case result.Kind() == types.OpaqueKind && result.TypeName() == cel.OptionalType(cel.DynType).TypeName():
		problem.Remedy = "Say what counts where the field is missing, and compare it, as in \"object.?status.?ready.orValue(false) == true\"."
	}

	return problem
}

// describe returns the first errors of an expression with their positions.
func describe(issues *cel.Issues, source common.Source) string {
	found := issues.Errors()
	shown := found[:min(len(found), maxIssues)]
	lines := make([]string, 0, len(shown)+1)

	for _, issue := range shown {
		line := strings.TrimPrefix(issue.ToDisplayString(source), "ERROR: ")
		// Expressions have no container here.
		lines = append(lines, strings.Replace(line, " (in container '')", "", 1))
	}

	if more := len(found) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}

	return strings.Join(lines, "\n")
}

// broken is the error of a failure in CEL itself, which is not the user's fault.
func broken(err error) error {
	return &Error{
		Field: "expr", Found: fmt.Sprintf("the expression cannot be run: %s", err),
		Remedy: "Simplify the expression, and report this.",
	}
}
