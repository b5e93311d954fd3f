// SPDX-License-Identifier: MPL-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var _ cluster.Gate = (*condition)(nil)

// maxNamed is how many objects a message names.
const maxNamed = 5

// condition is a rule over the objects of a cluster.
type condition struct {
	*Rule
	objects cluster.Objects
}

// Holds implements [cluster.Gate]. Its error wraps that of the objects, cluster.ErrRefused if the expression costs
// too much, or the cause of a context that ended.
func (c *condition) Holds(ctx context.Context, node string) (holds bool, seen string, err error) {
	found, err := c.objects.Objects(ctx, c.query)

	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return false, "", fmt.Errorf("the cluster serves no %s %s: %w", c.query.APIVersion, c.query.Kind, err)
	case err != nil:
		// The error names what was read.
		return false, "", err
	case len(found) == 0 && c.query.Name != "":
		// With a wrong name, the gate must not hold for lack of objects.
		return false, fmt.Sprintf("the cluster has no %s", subject(c.query)), nil
	case c.expr.each:
		return c.holdsForEach(ctx, found, node)
	default:
		return c.holdsForAll(ctx, found, node)
	}
}

// holdsForEach evaluates the expression for each object. Objects for which it is false are reported rather than
// objects for which it could not be evaluated.
func (c *condition) holdsForEach(ctx context.Context, found []map[string]any, node string) (bool, string, error) {
	if len(found) == 0 {
		if c.orNone {
			return true, "", nil
		}

		return false, fmt.Sprintf("the cluster has no %s", subject(c.query)), nil
	}

	var (
		faults  []string
		unknown error
		spent   uint64
	)

	list := asList(found)

	for done, object := range found {
		variables := map[string]any{varObject: object, varObjects: list, varNode: node}

		holds, cost, err := c.expr.holds(ctx, variables)
		spent += cost

		switch {
		case ctx.Err() != nil:
			return false, "", fmt.Errorf("unable to evaluate the expression: %w", cluster.Ended(ctx))
		case errors.Is(err, errCost), spent > maxAsk:
			return false, "", c.tooMuch(fmt.Sprintf("after %d of %d objects", done, len(found)))
		case err != nil && unknown == nil:
			unknown = fmt.Errorf("unable to evaluate the expression for %s %s: %w", c.query.Kind, nameOf(object), err)
		case err == nil && !holds && len(faults) < maxNamed:
			faults = append(faults, nameOf(object)+c.about(ctx, variables))
		case err == nil && !holds:
			// The name is not shown, it only counts.
			faults = append(faults, nameOf(object))
		}
	}

	switch {
	case len(faults) > 0:
		return false, c.atFault(faults), nil
	case unknown != nil:
		return false, "", unknown
	default:
		return true, "", nil
	}
}

// holdsForAll evaluates the expression once, over the list or over the node alone.
func (c *condition) holdsForAll(ctx context.Context, found []map[string]any, node string) (bool, string, error) {
	holds, _, err := c.expr.holds(ctx, map[string]any{varObject: nil, varObjects: asList(found), varNode: node})

	switch {
	case errors.Is(err, errCost):
		return false, "", c.tooMuch(fmt.Sprintf("over %d objects", len(found)))
	case err != nil:
		return false, "", fmt.Errorf("unable to evaluate the expression for %s: %w", subject(c.query), err)
	case holds:
		return true, "", nil
	case !c.expr.all && node == "":
		return false, fmt.Sprintf("before the roll, where node is empty, this is not true: %s", c.expr.text), nil
	case !c.expr.all:
		return false, fmt.Sprintf("node %s does not satisfy: %s", node, c.expr.text), nil
	case len(found) == 0:
		return false, fmt.Sprintf("the cluster has no %s, which does not satisfy: %s", subject(c.query), c.expr.text), nil
	}

	names := make([]string, len(found))
	for i, object := range found {
		names[i] = nameOf(object)
	}

	return false, c.unsatisfied(names), nil
}

// tooMuch returns the error of an expression that costs too much. It would do so again, so it is not waited for.
func (c *condition) tooMuch(where string) error {
	return fmt.Errorf("unable to evaluate the expression for %s: %w: it does more work than a gate may, and was stopped %s; narrow the gate by namespace or selector, or write a simpler expression",
		subject(c.query), cluster.ErrRefused, where)
}

// atFault names the objects for which the expression is false.
func (c *condition) atFault(names []string) string {
	if c.preset != "" {
		return fmt.Sprintf("not healthy: %s %s", c.query.Kind, enumerate(names))
	}

	return c.unsatisfied(names)
}

func (c *condition) unsatisfied(names []string) string {
	verb := "do"
	if len(names) == 1 {
		verb = "does"
	}

	return fmt.Sprintf("%s %s %s not satisfy: %s", c.query.Kind, enumerate(names), verb, c.expr.text)
}

// about returns what a preset says about an object, in brackets; empty if that fails.
func (c *condition) about(ctx context.Context, variables map[string]any) string {
	if c.detail == nil {
		return ""
	}

	detail, _, err := c.detail.evaluate(ctx, variables)
	if err != nil {
		return ""
	}

	return fmt.Sprintf(" (%s)", readable.OneLine(fmt.Sprint(detail), maxShown))
}

// enumerate returns the first names and how many more there are.
func enumerate(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}

	return strings.Join(names, ", ")
}

// nameOf returns the namespace and name of an object.
func nameOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)

	switch {
	case name == "":
		return "without a name"
	case namespace == "":
		return name
	default:
		return namespace + "/" + name
	}
}

// asList returns the list in the type that CEL expects.
func asList(found []map[string]any) []any {
	list := make([]any, len(found))
	for i, object := range found {
		list[i] = object
	}

	return list
}
