// SPDX-License-Identifier: MPL-2.0

package gate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// refusal returns the error of a gate or a window that is invalid.
func refusal(t *testing.T, err error) *gate.Error {
	t.Helper()

	var problem *gate.Error
	if !errors.As(err, &problem) {
		t.Fatalf("%v is no *gate.Error", err)
	}

	if problem.Found == "" || problem.Remedy == "" || problem.Error() != problem.Found {
		t.Errorf("%+v does not say everything", problem)
	}

	if strings.HasSuffix(problem.Found, ".") || !strings.HasSuffix(problem.Remedy, ".") {
		t.Errorf("%+v: what was found has no full stop, the remedy has one", problem)
	}

	return problem
}

func TestValidate_RefusesAnInvalidGate(t *testing.T) {
	whole := func(change func(*gate.Spec)) gate.Spec {
		spec := deploymentGate("object.spec.replicas == 3")
		change(&spec)

		return spec
	}

	preset := func(change func(*gate.Spec)) gate.Spec {
		spec := gate.Spec{Label: "gates[0]", Preset: "longhorn"}
		change(&spec)

		return spec
	}

	for name, given := range map[string]struct {
		spec  gate.Spec
		field string
		says  string
	}{
		"nothing at all":                 {gate.Spec{}, "api_version", "missing"},
		"no kind":                        {whole(func(s *gate.Spec) { s.Query.Kind = "" }), "kind", "missing"},
		"no expression":                  {whole(func(s *gate.Spec) { s.Expr = " \n" }), "expr", "missing"},
		"a blank API version":            {whole(func(s *gate.Spec) { s.Query.APIVersion = " " }), "api_version", `" "`},
		"an API version without version": {whole(func(s *gate.Spec) { s.Query.APIVersion = "apps/" }), "api_version", `"apps/"`},
		"an API version without group":   {whole(func(s *gate.Spec) { s.Query.APIVersion = "/v1" }), "api_version", `"/v1"`},
		"an API version with a kind":     {whole(func(s *gate.Spec) { s.Query.APIVersion = "apps/v1/Deployment" }), "api_version", "apps/v1/Deployment"},
		"a kind with blanks":             {whole(func(s *gate.Spec) { s.Query.Kind = "Deployment " }), "kind", `"Deployment "`},
		"a kind with its group":          {whole(func(s *gate.Spec) { s.Query.Kind = "volumes.longhorn.io" }), "kind", "volumes.longhorn.io"},
		"a Secret":                       {whole(func(s *gate.Spec) { s.Query.Kind = "Secret" }), "kind", "gates may not read Secrets"},
		"a Secret in small letters":      {whole(func(s *gate.Spec) { s.Query.Kind = "secret" }), "kind", "gates may not read Secrets"},
		"a name and a selector":          {whole(func(s *gate.Spec) { s.Query.Name, s.Query.Selector = "a", "b=c" }), "selector", "exclude each other"},
		"a blank name":                   {whole(func(s *gate.Spec) { s.Query.Name = "  " }), "name", `"  "`},
		"a name with its namespace":      {whole(func(s *gate.Spec) { s.Query.Name = "default/web" }), "name", "default/web"},
		"a namespace of two lines":       {whole(func(s *gate.Spec) { s.Query.Namespace = "a\nb" }), "namespace", `"a\nb"`},
		"a blank selector":               {whole(func(s *gate.Spec) { s.Query.Selector = " " }), "selector", `" "`},
		"a selector of two lines":        {whole(func(s *gate.Spec) { s.Query.Selector = "a=b\nc=d" }), "selector", `"a=b\nc=d"`},
		"a negative timeout":             {whole(func(s *gate.Spec) { s.Timeout = -time.Second }), "timeout", "-1s"},
		"an unknown preset":              {preset(func(s *gate.Spec) { s.Preset = "long-horn" }), "preset", `"long-horn"`},
		"a preset with an API version":   {preset(func(s *gate.Spec) { s.Query.APIVersion = "v1" }), "api_version", "longhorn brings its own"},
		"a preset with a kind":           {preset(func(s *gate.Spec) { s.Query.Kind = "Pod" }), "kind", "longhorn brings its own"},
		"a preset with a name":           {preset(func(s *gate.Spec) { s.Query.Name = "a" }), "name", "longhorn brings its own"},
		"a preset with a selector":       {preset(func(s *gate.Spec) { s.Query.Selector = "a" }), "selector", "longhorn brings its own"},
		"a preset with an expression":    {preset(func(s *gate.Spec) { s.Expr = "true" }), "expr", "longhorn brings its own"},
		"a preset in a blank namespace":  {preset(func(s *gate.Spec) { s.Query.Namespace = " " }), "namespace", `" "`},
		"a preset with a timeout of -1m": {preset(func(s *gate.Spec) { s.Timeout = -time.Minute }), "timeout", "-1m"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gate.Compile(given.spec)

			if problem := refusal(t, err); problem.Field != given.field || !strings.Contains(problem.Found, given.says) {
				t.Errorf("%s: %s; want %s: ...%s...", problem.Field, problem.Found, given.field, given.says)
			}
		})
	}
}

func TestValidate_UnknownPresetNamesTheKnown(t *testing.T) {
	_, err := gate.Compile(gate.Spec{Preset: "ceph"})

	for _, known := range gate.Presets() {
		if problem := refusal(t, err); !strings.Contains(problem.Remedy, known) {
			t.Errorf("%q does not name %s", problem.Remedy, known)
		}
	}
}

func TestValidate_RefusesAnInvalidExpression(t *testing.T) {
	for name, given := range map[string]struct {
		expr  string
		found string
		cures string
	}{
		"it ends too early": {
			"object.spec.replicas ==",
			"expr:1:24: Syntax error: mismatched input '<EOF>'", "Correct the expression",
		},
		"a variable does not exist": {
			"1 == 1 &&\n  obj.ready",
			"expr:2:3: undeclared reference to 'obj'\n |   obj.ready\n | ..^", "object, which is each object",
		},
		"a function does not exist":         {"objects.count() > 0", "expr:1:14: undeclared reference to 'count'", "Correct the expression"},
		"types do not match":                {"node == 1", "expr:1:6: found no matching overload for '_==_'", "Correct the expression"},
		"a regular expression is broken":    {"node.matches('worker-[')", "expr:1:14: invalid matches argument", "Correct the expression"},
		"a duration is broken":              {"node == '' && duration('1 hour') > duration('1m')", "expr:1:24: invalid duration argument", "Correct the expression"},
		"there is no clock":                 {"timestamp(object.status.since) < now", "undeclared reference to 'now'", "Correct the expression"},
		"it gives a field":                  {"object.status.ready", "of which only the object knows the type", "== true"},
		"it gives an optional field":        {"object.?status.?ready", "gives optional_type(dyn)", ".orValue(false) == true"},
		"it gives a number":                 {"objects.size()", "gives int, and has to give bool: objects.size()", "Compare it"},
		"it gives a text":                   {"node", "gives string", "Compare it"},
		"it is about nothing":               {"1 < 2", "uses none of object, objects and node", "Use object"},
		"it is about a macro's object only": {"[1].all(object, object == 1)", "uses none of object, objects and node", "Use object"},
		"it is too long":                    {"node == '" + strings.Repeat("a", 11_000) + "'", "size exceeds limit", "Correct the expression"},
		"it is too deep":                    {strings.Repeat("(", 300) + "node == ''" + strings.Repeat(")", 300), "recursion limit", "Correct the expression"},
		"it has many errors":                {"a || b || c || d || e || f || g", "\nand 2 more", "Correct the expression"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gate.Compile(deploymentGate(given.expr))

			problem := refusal(t, err)
			if problem.Field != "expr" || !strings.Contains(problem.Found, given.found) || !strings.Contains(problem.Remedy, given.cures) {
				t.Errorf("%+v\nwant expr: ...%s... cured by ...%s...", problem, given.found, given.cures)
			}

			if len(problem.Found) > 2000 {
				t.Errorf("the message has %d bytes", len(problem.Found))
			}
		})
	}
}

func TestValidate_GateNeedsNoMoreThanItSays(t *testing.T) {
	for name, spec := range map[string]gate.Spec{
		"a kind of the core":      {Query: cluster.ObjectQuery{APIVersion: "v1", Kind: "Node"}, Expr: "objects.size() > 2"},
		"a set-based selector":    {Query: cluster.ObjectQuery{APIVersion: "v1", Kind: "Pod", Selector: "tier notin (a, b),!canary"}, Expr: "objects == []"},
		"a name without a space":  {Query: cluster.ObjectQuery{APIVersion: "v1", Kind: "Node", Name: "worker-1"}, Expr: "object.spec == {}"},
		"a kind about Secrets":    {Query: cluster.ObjectQuery{APIVersion: "external-secrets.io/v1", Kind: "ExternalSecret"}, Expr: "objects == []"},
		"an expression of a line": {Query: cluster.ObjectQuery{APIVersion: "v1", Kind: "Node"}, Expr: "has(object.spec.unschedulable) ? object.spec.unschedulable == false : true"},
	} {
		if _, err := gate.Compile(spec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
