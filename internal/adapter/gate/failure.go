// SPDX-License-Identifier: MPL-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// errCost is the error of an evaluation that costs too much.
var errCost = errors.New("the expression does too much")

// The errors of CEL repeat values of objects, which may be secrets. Messages only say where an expression failed
// and what kind of failure it was: the text up to the value, or all of it if only types follow. The texts are those
// of common/types, common/stdlib, interpreter and ext of cel-go.
var (
	// failures are the beginnings of errors that continue with a value or with nothing.
	failures = [...]string{
		"cannot slice", "division by zero", "duration overflow", "error during formatting", "error parsing regexp",
		"index out of bounds", "index out of range", "insert failed", "integer overflow", "invalid RFC 3339 timestamp",
		"invalid UTF-8 in bytes, cannot convert to string", "invalid substring range", "join: invalid input",
		"level must be non-negative", "list elements must be comparable", "list elements must have the same type", "lists.range: size",
		"math.@max(list) argument must not be empty", "math.@min(list) argument must not be empty",
		"math.bitShiftLeft() negative offset", "math.bitShiftRight() negative offset", "modulus by zero", "NaN values cannot be ordered",
		"no such key", "no such overload", "optional.none() dereference", "timestamp overflow", "timezone offset hours out of range",
		"timezone offset minutes out of range", "type conversion error", "unknown time zone", "unsigned integer overflow",
		"unsupported conversion to ref.Val", "unsupported index",
	}
	// typed matches whole errors that name only functions and types.
	typed = regexp.MustCompile(`^(no such overload: [\w.@]+(\([\w., ]*\))?` +
		`|type conversion error from '[\w.]+' to '[\w.]+'|unsupported index type '[\w.]+' in list|got '[\w.]+', expected iterable type)$`)
	// shared are errors of which cel-go has one instance for all programs. It writes the position into the instance
	// where it first occurs, so the position means nothing.
	shared = [...]string{"integer overflow", "timestamp overflow"}
)

// literals has the positions of the parts of an expression, and the keys that are written in it.
type literals struct {
	source *celast.SourceInfo
	keys   map[string]bool
}

func newLiterals(ast *cel.Ast) literals {
	read := literals{source: ast.NativeRep().SourceInfo(), keys: map[string]bool{}}

	celast.PostOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(part celast.Expr) {
		switch part.Kind() {
		case celast.SelectKind:
			read.keys[part.AsSelect().FieldName()] = true
		case celast.CallKind:
			switch part.AsCall().FunctionName() {
			case operators.Index, operators.OptIndex, operators.OptSelect:
			default:
				return
			}

			if args := part.AsCall().Args(); len(args) == 2 && args[1].Kind() == celast.LiteralKind {
				read.keys[fmt.Sprint(args[1].AsLiteral())] = true
			}
		}
	}))

	return read
}

// failure returns what may be said about an error of an evaluation: that its context ended, with the cause, that it
// cost too much, which is [errCost], or where and why it failed.
func (l literals) failure(ctx context.Context, err error) error {
	var cancelled interpreter.EvalCancelledError

	switch {
	case ctx.Err() != nil:
		return cluster.Ended(ctx)
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		return errCost
	default:
		return errors.New(l.position(err) + readable.OneLine(l.class(err.Error()), maxShown))
	}
}

// class returns the kind of an error without the values in it.
func (l literals) class(text string) string {
	if key, missing := strings.CutPrefix(text, "no such key: "); missing && l.keys[key] || typed.MatchString(text) {
		return text
	}

	for _, known := range &failures {
		if strings.HasPrefix(text, known) {
			return known
		}
	}

	return "the evaluation failed"
}

// position returns where the error occurred, as "expr:1:14: "; empty if that is not known.
func (l literals) position(err error) string {
	var failed *types.Err

	if !errors.As(err, &failed) || failed == types.NoSuchOverloadErr() {
		return ""
	}

	for _, text := range shared {
		if failed.Error() == text {
			return ""
		}
	}

	at := l.source.GetStartLocation(failed.NodeID())
	if at.Line() <= 0 {
		return ""
	}

	return fmt.Sprintf("expr:%d:%d: ", at.Line(), at.Column()+1)
}
