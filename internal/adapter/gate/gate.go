// SPDX-License-Identifier: MPL-2.0

// Package gate holds a roll up until conditions of the user's own hold: CEL
// expressions over live objects, and maintenance windows.
package gate

import (
	"cmp"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Spec is a gate as the configuration says it.
type Spec struct {
	// Label is how people recognise it: "gates[0]".
	Label string
	// Preset is one of [Presets]; the query and the expression are its own then,
	// except for the namespace of the query, which narrows it.
	Preset string
	Query  cluster.ObjectQuery
	// Expr is a CEL expression of type bool over one of these variables, or
	// several of them:
	//
	//   - object, each object of the query in turn: the expression has to be true
	//     of all of them, and there has to be at least one;
	//   - objects, the list of all of them, where it does not use object: it is
	//     asked once, and the list may be empty;
	//   - node, the name of the node about to be disturbed, empty before the roll.
	//
	// Beside the standard library it has cel-go's extensions for strings, lists,
	// sets and math, and optional fields: object.?status.?phase.orValue("").
	Expr string
	// Timeout is how long it may take to come to hold; 0 is [DefaultTimeout].
	Timeout time.Duration
}

// DefaultTimeout is how long a gate may take to come to hold.
const DefaultTimeout = 10 * time.Minute

// Error is a gate or a window that cannot be: Field is the attribute at fault,
// spelled as in the configuration: "preset", "api_version", "kind", "namespace",
// "name", "selector", "expr" or "timeout" of a gate, "cron", "duration" or
// "time_zone" of a window. Found is a sentence without a full stop, which for an
// expression goes on with the source line and a mark at the position; Remedy is
// a sentence.
type Error struct {
	Field, Found, Remedy string
}

// Error is what was found.
func (e *Error) Error() string { return e.Found }

// Rule is a gate that compiled.
type Rule struct {
	label   string
	preset  string
	query   cluster.ObjectQuery
	timeout time.Duration
	expr    *expression
	// orNone tells that it holds where there are no objects.
	orNone bool
	// detail is what to say about an object that is at fault; nil for nothing.
	detail *expression
}

// Compile reads a gate. Its error is an [*Error], of the first problem in the
// order of the attributes.
func Compile(spec Spec) (*Rule, error) {
	if err := validate(spec); err != nil {
		return nil, err
	}

	rule := &Rule{label: spec.Label, preset: spec.Preset, query: spec.Query, timeout: cmp.Or(spec.Timeout, DefaultTimeout)}

	if spec.Preset == "" {
		expr, err := compile(spec.Expr)
		if err != nil {
			return nil, err
		}

		rule.expr = expr

		return rule, nil
	}

	if err := rule.take(spec.Preset); err != nil {
		return nil, err
	}

	return rule, nil
}

// take makes the rule that of the preset.
func (r *Rule) take(name string) error {
	chosen, _ := presetNamed(name)

	expr, err := compile(chosen.expr)
	if err != nil {
		return err
	}

	detail, err := compileText(chosen.detail)
	if err != nil {
		return err
	}

	r.query.APIVersion, r.query.Kind = chosen.apiVersion, chosen.kind
	r.expr, r.detail, r.orNone = expr, detail, chosen.orNone

	return nil
}

// On is the gate over the objects of a cluster.
func (r *Rule) On(objects cluster.Objects) cluster.Gate {
	return &condition{Rule: r, objects: objects}
}

// Timeout is how long the gate may take to come to hold.
func (r *Rule) Timeout() time.Duration { return r.timeout }

// String is how people recognise the gate: "gates[0] (preset longhorn)" or
// "gates[1] (Deployment default/web)".
func (r *Rule) String() string {
	what := subject(r.query)

	if r.preset != "" {
		what = "preset " + r.preset
		if r.query.Namespace != "" {
			what += " in " + r.query.Namespace
		}
	}

	return cmp.Or(r.label, "gate") + " (" + what + ")"
}

// subject is what a query is about, such as "Deployment default/web" or "Pod in
// kube-system with app=web".
func subject(query cluster.ObjectQuery) string {
	what := query.Kind

	switch {
	case query.Name != "" && query.Namespace != "":
		return what + " " + query.Namespace + "/" + query.Name
	case query.Name != "":
		return what + " " + query.Name
	}

	if query.Namespace != "" {
		what += " in " + query.Namespace
	}

	if query.Selector != "" {
		what += " with " + query.Selector
	}

	return what
}
