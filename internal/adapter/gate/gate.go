// SPDX-License-Identifier: MPL-2.0

// Package gate makes a roll wait for the user's own conditions: CEL expressions over live objects, and maintenance
// windows.
package gate

import (
	"cmp"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Spec is a gate as it is configured.
type Spec struct {
	// Label names the gate in messages: "gates[0]".
	Label string
	// Preset is one of [Presets]. The query and the expression are then those of the preset, except for the
	// namespace of the query, which narrows it.
	Preset string
	Query  cluster.ObjectQuery
	// Expr is a CEL expression of type bool over one or several of these variables:
	//
	//   - object, each object of the query in turn: the expression has to be true for all of them, and there has to be
	//     at least one;
	//   - objects, the list of all of them, if it does not use object: it is evaluated once, and the list may be empty;
	//   - node, the name of the node that is about to be disturbed; empty before the roll.
	//
	// Besides the standard library it may use cel-go's extensions for strings, lists, sets and math, and optional
	// fields: object.?status.?phase.orValue("").
	Expr string
	// Timeout is how long the gate may take to hold; 0 means [DefaultTimeout].
	Timeout time.Duration
}

// DefaultTimeout is how long a gate may take to hold by default.
const DefaultTimeout = 10 * time.Minute

// Error is the error of a gate or a window that is not valid. Field is the attribute at fault, spelled as in the
// configuration: "preset", "api_version", "kind", "namespace", "name", "selector", "expr" or "timeout" of a gate,
// "cron", "duration" or "time_zone" of a window. Found is a sentence without a full stop, which for an expression
// continues with the source line and a mark at the position. Remedy is a sentence.
type Error struct {
	Field, Found, Remedy string
}

// Error returns Found.
func (e *Error) Error() string { return e.Found }

// Rule is a compiled gate.
type Rule struct {
	label   string
	preset  string
	query   cluster.ObjectQuery
	timeout time.Duration
	expr    *expression
	// orNone is true if the gate holds without any object.
	orNone bool
	// detail is what a message says about an object at fault; nil if it says nothing.
	detail *expression
}

// Compile compiles a gate. Its error is an [*Error] about the first problem in the order of the attributes.
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

// take sets the query and the expressions of the rule to those of the preset.
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

// On returns the gate over the objects of a cluster.
func (r *Rule) On(objects cluster.Objects) cluster.Gate {
	return &condition{Rule: r, objects: objects}
}

// Timeout returns how long the gate may take to hold.
func (r *Rule) Timeout() time.Duration { return r.timeout }

// String returns how messages name the gate: "gates[0] (preset longhorn)" or "gates[1] (Deployment default/web)".
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

// subject returns what a query selects, such as "Deployment default/web" or "Pod in kube-system with app=web".
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
