// SPDX-License-Identifier: MPL-2.0

package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// shelf serves the same objects for every query and remembers the last one.
type shelf struct {
	objects []map[string]any
	err     error
	asked   cluster.ObjectQuery
}

func (s *shelf) Objects(_ context.Context, query cluster.ObjectQuery) ([]map[string]any, error) {
	s.asked = query

	return s.objects, s.err
}

// decode reads objects as the API server writes them, one JSON list.
func decode(t *testing.T, text string) []map[string]any {
	t.Helper()

	var objects []map[string]any
	if err := json.Unmarshal([]byte(text), &objects); err != nil {
		t.Fatalf("fixture: %v", err)
	}

	return objects
}

// deployments returns objects with the ready replicas, the numbers as int64, as
// the unstructured objects of Kubernetes have them.
func deployments(ready ...int64) []map[string]any {
	objects := make([]map[string]any, len(ready))
	for i, count := range ready {
		objects[i] = map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": fmt.Sprintf("web-%d", i)},
			"spec":     map[string]any{"replicas": int64(3), "paused": false},
			"status":   map[string]any{"readyReplicas": count},
		}
	}

	return objects
}

func deploymentGate(expr string) gate.Spec {
	return gate.Spec{Label: "gates[0]", Query: cluster.ObjectQuery{APIVersion: "apps/v1", Kind: "Deployment"}, Expr: expr}
}

func compiled(t *testing.T, spec gate.Spec) *gate.Rule {
	t.Helper()

	rule, err := gate.Compile(spec)
	if err != nil {
		t.Fatalf("Compile(%+v): %v", spec, err)
	}

	return rule
}

func TestGate_ExpressionIsAskedOfTheObjects(t *testing.T) {
	const ready = "object.status.readyReplicas == object.spec.replicas"

	for name, given := range map[string]struct {
		expr    string
		objects []map[string]any
		node    string
		holds   bool
		seen    string
	}{
		"all of them are as they should be": {expr: ready, objects: deployments(3, 3), holds: true},
		"one is not": {
			expr: ready, objects: deployments(3, 2, 3),
			seen: "Deployment default/web-1 does not satisfy: " + ready,
		},
		"five are named and the rest counted": {
			expr: ready, objects: deployments(0, 1, 2, 3, 2, 1, 0, 0),
			seen: "Deployment default/web-0, default/web-1, default/web-2, default/web-4, default/web-5 and 2 more do not satisfy: " + ready,
		},
		"five are all named": {
			expr: ready, objects: deployments(0, 1, 2, 1, 0),
			seen: "Deployment default/web-0, default/web-1, default/web-2, default/web-3, default/web-4 do not satisfy: " + ready,
		},
		"the sixth is counted": {
			expr: ready, objects: deployments(0, 1, 2, 1, 0, 2),
			seen: "Deployment default/web-0, default/web-1, default/web-2, default/web-3, default/web-4 and 1 more do not satisfy: " + ready,
		},
		"object needs at least one":              {expr: ready, seen: "the cluster has no Deployment"},
		"objects is one question":                {expr: "objects.filter(o, o.status.readyReplicas == 3).size() >= 2", objects: deployments(3, 0, 3), holds: true},
		"objects may be empty":                   {expr: "objects.size() == 0", holds: true},
		"objects may be too few":                 {expr: "size(objects) > 2", objects: deployments(3, 3), seen: "Deployment default/web-0, default/web-1 do not satisfy: size(objects) > 2"},
		"objects may be missing":                 {expr: "size(objects) > 2", seen: "the cluster has no Deployment, which does not satisfy: size(objects) > 2"},
		"both are asked of each":                 {expr: "object.status.readyReplicas == objects.size()", objects: deployments(2, 2), holds: true},
		"a macro's own variable is not object":   {expr: "objects.all(object, object.status.readyReplicas == 3)", objects: deployments(), holds: true},
		"node is the one about to be disturbed":  {expr: "node != 'worker-1'", node: "worker-2", holds: true},
		"node can be refused":                    {expr: "node != 'worker-1'", node: "worker-1", seen: "node worker-1 does not satisfy: node != 'worker-1'"},
		"node is empty before the roll":          {expr: "node != ''", seen: "before the roll, where node is empty, this is not true: node != ''"},
		"node beside object":                     {expr: "object.metadata.name != node", objects: deployments(1, 1), node: "web-1", seen: "Deployment default/web-1 does not satisfy: object.metadata.name != node"},
		"optional fields":                        {expr: "object.?status.?phase.orValue('none') == 'none'", objects: deployments(1), holds: true},
		"whole numbers compare with fractions":   {expr: "object.status.readyReplicas >= 2.5 && objects.size() < 1.5", objects: deployments(3), holds: true},
		"strings, lists, sets and math":          {expr: "sets.contains(['web'], [object.metadata.name.split('-')[0]]) && math.greatest(1, 2) == 2 && [1, 1].distinct().size() == 1", objects: deployments(1), holds: true},
		"a long expression is told on one line":  {expr: "object.status\n  .readyReplicas   ==\n 4", objects: deployments(3), seen: "Deployment default/web-0 does not satisfy: object.status .readyReplicas == 4"},
		"a fault is told before what is unknown": {expr: "object.metadata.name == 'web-0' ? object.nothing == 1 : false", objects: deployments(1, 1), seen: "Deployment default/web-1 does not satisfy: object.metadata.name == 'web-0' ? object.nothing == 1 : false"},
	} {
		t.Run(name, func(t *testing.T) {
			holds, seen, err := compiled(t, deploymentGate(given.expr)).On(&shelf{objects: given.objects}).Holds(t.Context(), given.node)
			if err != nil || holds != given.holds || seen != given.seen {
				t.Errorf("Holds: %v, %q, %v\nwant   %v, %q", holds, seen, err, given.holds, given.seen)
			}
		})
	}
}

func TestGate_QueryReachesTheCluster(t *testing.T) {
	query := cluster.ObjectQuery{APIVersion: "v1", Kind: "Pod", Namespace: "kube-system", Selector: "app in (a, b)"}

	for name, given := range map[string]struct {
		spec gate.Spec
		want cluster.ObjectQuery
	}{
		"as it is written": {spec: gate.Spec{Query: query, Expr: "objects.size() == 0"}, want: query},
		"of a preset": {
			spec: gate.Spec{Preset: "longhorn", Query: cluster.ObjectQuery{Namespace: "storage"}},
			want: cluster.ObjectQuery{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Namespace: "storage"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			served := &shelf{}
			if _, _, err := compiled(t, given.spec).On(served).Holds(t.Context(), ""); err != nil || served.asked != given.want {
				t.Errorf("asked for %+v, want %+v (%v)", served.asked, given.want, err)
			}
		})
	}
}

func TestGate_NamedObjectHasToExist(t *testing.T) {
	for _, expr := range []string{"object.spec.replicas == 3", "objects.all(o, o.spec.replicas == 3)", "node != 'x'"} {
		spec := deploymentGate(expr)
		spec.Query.Namespace, spec.Query.Name = "default", "wbe"

		holds, seen, err := compiled(t, spec).On(&shelf{}).Holds(t.Context(), "")
		if holds || err != nil || seen != "the cluster has no Deployment default/wbe" {
			t.Errorf("%s: %v, %q, %v", expr, holds, seen, err)
		}
	}
}

func TestGate_SelectorWithoutObjectsIsReported(t *testing.T) {
	spec := deploymentGate("object.spec.replicas == 3")
	spec.Query.Namespace, spec.Query.Selector = "default", "app=wbe"

	holds, seen, err := compiled(t, spec).On(&shelf{}).Holds(t.Context(), "")
	if holds || err != nil || seen != "the cluster has no Deployment in default with app=wbe" {
		t.Errorf("%v, %q, %v", holds, seen, err)
	}
}

func TestGate_IsUnknownWhenItCannotBeAsked(t *testing.T) {
	nameless := []map[string]any{{"kind": "Deployment"}}

	for name, given := range map[string]struct {
		spec    gate.Spec
		objects []map[string]any
		err     error
		want    error
		says    []string
	}{
		"the kind is not served": {
			spec: gate.Spec{Preset: "longhorn"}, err: fmt.Errorf("no matches: %w", cluster.ErrNotFound), want: cluster.ErrNotFound,
			says: []string{"the cluster serves no longhorn.io/v1beta2 Volume"},
		},
		"the API server does not answer": {
			spec: deploymentGate("objects.size() > 0"), err: fmt.Errorf("read the Deployment objects: %w", cluster.ErrUnreachable), want: cluster.ErrUnreachable,
			says: []string{"read the Deployment objects"},
		},
		"there are more objects than fit": {
			spec: deploymentGate("objects.size() > 0"), err: fmt.Errorf("unable to read the Deployment objects: %w: narrow the gate", cluster.ErrRefused), want: cluster.ErrRefused,
			says: []string{"unable to read the Deployment objects: refused: narrow the gate"},
		},
		"a field is missing": {
			spec: deploymentGate("object.status.ready == true"), objects: deployments(1),
			says: []string{"Deployment default/web-0", "no such key: ready"},
		},
		"a field of an object of the list is missing": {
			spec: deploymentGate("objects.exists_one(o, o.status.ready == 1)"), objects: deployments(1),
			says: []string{"for Deployment", "no such key: ready"},
		},
		"an object has no name": {
			spec: deploymentGate("object.status.ready == true"), objects: nameless,
			says: []string{"Deployment without a name"},
		},
		"a value is no bool": {
			spec: deploymentGate("object.spec.paused || object.spec.replicas"), objects: deployments(1),
			says: []string{"Deployment default/web-0"},
		},
		"the expression does too much": {
			spec: deploymentGate("lists.range(1000).all(a, lists.range(20000).size() >= objects.size())"), objects: deployments(1),
			want: cluster.ErrRefused, says: []string{"more work than a gate may"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			holds, seen, err := compiled(t, given.spec).On(&shelf{objects: given.objects, err: given.err}).Holds(t.Context(), "")
			if holds || err == nil {
				t.Fatalf("%v, %q, %v", holds, seen, err)
			}

			if given.want != nil && !errors.Is(err, given.want) {
				t.Errorf("%v does not wrap %v", err, given.want)
			}

			for _, part := range given.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestGate_EvaluationEndsWithItsContext(t *testing.T) {
	// The loop runs for a second, which is within its limit.
	const loop = "lists.range(30000).all(i, i >= 0 && objects.size() > 0)"

	for name, given := range map[string]struct {
		expr string
		end  func(stop func())
	}{
		"before it begins":                   {expr: "objects.size() == 2", end: func(stop func()) { stop() }},
		"before it begins, one by one":       {expr: "object.status.readyReplicas <= 1", end: func(stop func()) { stop() }},
		"in the middle of a loop":            {expr: loop, end: func(stop func()) { time.AfterFunc(5*time.Millisecond, stop) }},
		"in a loop, after one was at fault":  {expr: "object.status.readyReplicas == 1 && " + loop, end: func(stop func()) { time.AfterFunc(5*time.Millisecond, stop) }},
		"in a loop about the second of them": {expr: "object.status.readyReplicas == 0 || " + loop, end: func(stop func()) { time.AfterFunc(5*time.Millisecond, stop) }},
	} {
		t.Run(name, func(t *testing.T) {
			stopped := errors.New("somebody pressed Ctrl-C")

			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)

			served := &ending{shelf: shelf{objects: deployments(0, 1)}, end: func() { given.end(func() { cancel(stopped) }) }}

			if holds, seen, err := compiled(t, deploymentGate(given.expr)).On(served).Holds(ctx, ""); holds || !errors.Is(err, stopped) {
				t.Errorf("%v, %q, %v", holds, seen, err)
			}
		})
	}
}

// ending is a shelf that runs a function after its answer.
type ending struct {
	shelf
	end func()
}

func (e *ending) Objects(ctx context.Context, query cluster.ObjectQuery) ([]map[string]any, error) {
	defer e.end()

	return e.shelf.Objects(ctx, query)
}

func TestGate_IsRecognised(t *testing.T) {
	for want, spec := range map[string]gate.Spec{
		"gates[0] (preset longhorn)":               {Label: "gates[0]", Preset: "longhorn"},
		"gates[0] (preset rook-ceph in ceph)":      {Label: "gates[0]", Preset: "rook-ceph", Query: cluster.ObjectQuery{Namespace: "ceph"}},
		"gates[1] (Deployment default/web)":        {Label: "gates[1]", Query: cluster.ObjectQuery{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "web"}, Expr: "objects == []"},
		"gates[2] (Node worker-1)":                 {Label: "gates[2]", Query: cluster.ObjectQuery{APIVersion: "v1", Kind: "Node", Name: "worker-1"}, Expr: "objects == []"},
		"gates[3] (Pod in kube-system with a=b)":   {Label: "gates[3]", Query: cluster.ObjectQuery{APIVersion: "v1", Kind: "Pod", Namespace: "kube-system", Selector: "a=b"}, Expr: "objects == []"},
		"gate (Deployment)":                        {Query: cluster.ObjectQuery{APIVersion: "apps/v1", Kind: "Deployment"}, Expr: "objects == []"},
		"gates[4] (Deployment in default)":         {Label: "gates[4]", Query: cluster.ObjectQuery{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default"}, Expr: "objects == []"},
		"gates[5] (Deployment with tier in (a,b))": {Label: "gates[5]", Query: cluster.ObjectQuery{APIVersion: "apps/v1", Kind: "Deployment", Selector: "tier in (a,b)"}, Expr: "objects == []"},
	} {
		if got := compiled(t, spec).On(&shelf{}).String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestGate_TimeoutIsItsOwn(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: gate.DefaultTimeout, time.Minute: time.Minute} {
		if got := compiled(t, gate.Spec{Preset: "longhorn", Timeout: given}).On(&shelf{}).Timeout(); got != want {
			t.Errorf("Timeout() = %s, want %s", got, want)
		}
	}
}

// secretive returns ConfigMaps with values that no message may repeat.
func secretive() []map[string]any {
	return []map[string]any{{
		"metadata": map[string]any{"namespace": "default", "name": "settings"},
		"data":     map[string]any{"password": "hunter2", "number": int64(424242), "big": int64(1<<63 - 1), "list": []any{int64(1)}},
	}}
}

func TestGate_ErrorOfAnExpressionShowsNoValue(t *testing.T) {
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
		// Types are not values.
		"int(object.data.password) == 1":              "expr:1:4: type conversion error from 'string' to 'int'",
		"object.data.list.join(',') == ''":            "expr:1:22: no such overload: join(list, string)",
		"size(object.data.number) == 1":               "expr:1:5: no such overload: size",
		"object.data.number && true":                  "expr:1:20: no such overload",
		"object.data.list[object.data.password] == 1": "expr:1:17: unsupported index type 'string' in list",
		"object.data.password.all(c, c == 1)":         "got 'types.String', expected iterable type",
		// These values are not shown either.
		"1 / (object.data.number - 424242) == 1": "expr:1:3: division by zero",
		"object.data.?nope.value() == 1":         "expr:1:24: optional.none() dereference",
		// A key is shown if the expression contains it.
		"object.data[object.data.password] == 1":           "expr:1:12: no such key",
		"{1: 1}[object.data.number] == 1":                  "expr:1:7: no such key",
		"object.data.ready == true":                        "expr:1:12: no such key: ready",
		"object['data']['not ready'] == true":              "expr:1:15: no such key: not ready",
		"{1: 1}[2] == object.data.number":                  "expr:1:7: no such key: 2",
		"object.\n  data.password == '' || object .nope\n": "expr:2:33: no such key: nope",
		// A value that cel-go shares between all programs may have any position.
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

func TestGate_ErrorOfAnExpressionIsShort(t *testing.T) {
	key := strings.Repeat("k", 5000)

	_, _, err := compiled(t, deploymentGate("object['"+key+"'] == 1")).On(&shelf{objects: deployments(1)}).Holds(t.Context(), "")
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("%v", err)
	}
}

func TestGate_DetailOfAPresetIsShort(t *testing.T) {
	long := postgres("db", `"readyInstances": 2, "phase": "`+strings.Repeat("x ", 5000)+`"`)

	holds, seen, err := compiled(t, gate.Spec{Preset: "cloudnative-pg"}).On(&shelf{objects: decode(t, "["+long+"]")}).Holds(t.Context(), "")
	if holds || err != nil || len(seen) > 400 || !strings.HasPrefix(seen, "not healthy: Cluster apps/db (2 of 3 instances ready, x x ") || !strings.HasSuffix(seen, "...)") {
		t.Errorf("%v, %q, %v", holds, seen, err)
	}
}

func TestGate_OneAskHasOneBudget(t *testing.T) {
	// A search for the word in the text costs 100,000: an ask may do a hundred of them, an evaluation ten.
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
