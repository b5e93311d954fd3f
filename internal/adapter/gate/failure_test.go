// SPDX-License-Identifier: MPL-2.0

package gate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// secretive are ConfigMaps with values that no message may repeat.
func secretive() []map[string]any {
	return []map[string]any{{
		"metadata": map[string]any{"namespace": "default", "name": "settings"},
		"data":     map[string]any{"password": "hunter2", "number": int64(424242), "big": int64(1<<63 - 1), "list": []any{int64(1)}},
	}}
}

func TestErrorOfAnExpressionShowsNoValue(t *testing.T) {
	for expr, want := range map[string]string{
		// The operand is dropped.
		"timestamp(object.data.password) == timestamp(0)":                         "expr:1:10: invalid RFC 3339 timestamp",
		"'a'.matches(object.data.password + '(')":                                 "expr:1:12: error parsing regexp",
		"timestamp(0).getHours(object.data.password) == 1":                        "expr:1:22: unknown time zone",
		"timestamp(0).getHours(object.data.password + ':00') == 1":                "expr:1:22: the evaluation failed",
		"timestamp(0).getHours('99:' + string(object.data.number)) == 1":          "expr:1:22: timezone offset hours out of range",
		"object.data.list[object.data.number] == 1":                               "expr:1:17: index out of bounds",
		"object.data.password.charAt(object.data.number) == ''":                   "expr:1:28: index out of range",
		"object.data.password.substring(2, object.data.number - 424241) == ''":    "expr:1:31: invalid substring range",
		"object.data.list.slice(object.data.number, 1) == []":                     "expr:1:23: cannot slice",
		"lists.range(object.data.number * 1000).size() == 1":                      "expr:1:12: lists.range: size",
		"math.bitShiftLeft(1, -object.data.number) == 1":                          "expr:1:18: math.bitShiftLeft() negative offset",
		"'%d'.format([object.data.password]) == ''":                               "expr:1:12: error during formatting",
		"object.data.list.all(i, timestamp(object.data.password) < timestamp(i))": "expr:1:34: invalid RFC 3339 timestamp",
		// Types are no values.
		"int(object.data.password) == 1":              "expr:1:4: type conversion error from 'string' to 'int'",
		"object.data.list.join(',') == ''":            "expr:1:22: no such overload: join(list, string)",
		"size(object.data.number) == 1":               "expr:1:5: no such overload: size",
		"object.data.number && true":                  "expr:1:20: no such overload",
		"object.data.list[object.data.password] == 1": "expr:1:17: unsupported index type 'string' in list",
		"object.data.password.all(c, c == 1)":         "got 'types.String', expected iterable type",
		// Nor are these.
		"1 / (object.data.number - 424242) == 1": "expr:1:3: division by zero",
		"object.data.?nope.value() == 1":         "expr:1:24: optional.none() dereference",
		// A key is shown where the expression has it.
		"object.data[object.data.password] == 1":           "expr:1:12: no such key",
		"{1: 1}[object.data.number] == 1":                  "expr:1:7: no such key",
		"object.data.ready == true":                        "expr:1:12: no such key: ready",
		"object['data']['not ready'] == true":              "expr:1:15: no such key: not ready",
		"{1: 1}[2] == object.data.number":                  "expr:1:7: no such key: 2",
		"object.\n  data.password == '' || object .nope\n": "expr:2:33: no such key: nope",
		// What cel-go hands out as one value for all programs carries any position.
		"-object.data.password == 1":                               "no such overload",
		"math.abs(-object.data.big - 1) == 1":                      "integer overflow",
		"timestamp(object.data.number * 10000000) == timestamp(0)": "timestamp overflow",
	} {
		t.Run(expr, func(t *testing.T) {
			spec := gate.Spec{Label: "gates[0]", Query: cluster.ObjectQuery{APIVersion: "v1", Kind: "ConfigMap"}, Expr: expr}

			holds, seen, err := compiled(t, spec).On(&shelf{objects: secretive()}).Holds(t.Context(), "")
			if holds || seen != "" || err == nil {
				t.Fatalf("%v, %q, %v", holds, seen, err)
			}

			if whole := "unable to evaluate the expression for ConfigMap default/settings: " + want; err.Error() != whole {
				t.Errorf("%q\nwant %q", err, whole)
			}

			for inner := err; inner != nil; inner = errors.Unwrap(inner) {
				if text := fmt.Sprintf("%+v", inner); strings.Contains(text, "hunter2") || strings.Contains(text, "4242") {
					t.Errorf("%q shows a value", text)
				}
			}
		})
	}
}

func TestErrorOfAnExpressionIsShort(t *testing.T) {
	key := strings.Repeat("k", 5000)

	_, _, err := compiled(t, deploymentGate("object['"+key+"'] == 1")).On(&shelf{objects: deployments(1)}).Holds(t.Context(), "")
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("%v", err)
	}
}

func TestDetailOfAPresetIsShort(t *testing.T) {
	long := postgres("db", `"readyInstances": 2, "phase": "`+strings.Repeat("x ", 5000)+`"`)

	holds, seen, err := compiled(t, gate.Spec{Preset: "cloudnative-pg"}).On(&shelf{objects: decode(t, "["+long+"]")}).Holds(t.Context(), "")
	if holds || err != nil || len(seen) > 400 || !strings.HasPrefix(seen, "not healthy: Cluster apps/db (2 of 3 instances ready, x x ") || !strings.HasSuffix(seen, "...)") {
		t.Errorf("%v, %q, %v", holds, seen, err)
	}
}

func TestOneAskHasOneBudget(t *testing.T) {
	// To look for the word in the text costs 100,000: a hundred objects are what
	// one ask may do, and ten are what one evaluation may.
	const work = "object.text.contains(object.word)"

	many := func(count int) []map[string]any {
		text, word := strings.Repeat("a", 20_000), strings.Repeat("b", 500)

		objects := deployments(make([]int64, count)...)
		for _, object := range objects {
			object["text"], object["word"] = text, word
		}

		return objects
	}

	for name, given := range map[string]struct {
		expr    string
		objects []map[string]any
		says    []string
	}{
		"as many as fit":               {expr: "!" + work, objects: many(90)},
		"very many that cost little":   {expr: "object.status.readyReplicas == 0 || " + work, objects: many(20_000)},
		"more than fit":                {expr: "!" + work, objects: many(110), says: []string{"for Deployment: refused: ", "after 99 of 110 objects", "namespace or selector", "a simpler expression"}},
		"more than fit, all at fault":  {expr: work, objects: many(110), says: []string{"after 99 of 110 objects"}},
		"more than fit, none can tell": {expr: work + " || object.nope == 1", objects: many(110), says: []string{"after 99 of 110 objects"}},
		"one too much":                 {expr: "lists.range(11).all(i, !" + work + ")", objects: many(3), says: []string{"after 0 of 3 objects", "a simpler expression"}},
		"a list as long as fits":       {expr: "objects.all(object, !" + work + ")", objects: many(9)},
		"a list too long":              {expr: "objects.all(object, !" + work + ")", objects: many(11), says: []string{"for Deployment: refused: ", "over 11 objects", "namespace or selector"}},
	} {
		t.Run(name, func(t *testing.T) {
			holds, seen, err := compiled(t, deploymentGate(given.expr)).On(&shelf{objects: given.objects}).Holds(t.Context(), "")

			if len(given.says) == 0 {
				if !holds || err != nil {
					t.Fatalf("%v, %q, %v", holds, seen, err)
				}

				return
			}

			if holds || seen != "" || !errors.Is(err, cluster.ErrRefused) || cluster.Heals(err) {
				t.Fatalf("%v, %q, %v", holds, seen, err)
			}

			for _, part := range given.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}
