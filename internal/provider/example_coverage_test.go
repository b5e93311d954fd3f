// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// TestEveryAttributeHasAnExample: who looks for an attribute in the documentation
// finds it in use. What can be set is set somewhere below examples, at its own
// place; what can only be read is read in a file that has its resource or data
// source; and each function is called.
func TestEveryAttributeHasAnExample(t *testing.T) {
	answer, err := providerserver.NewProtocol6(New("test")())().GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}

	shown := readExamples(t, filepath.Join("..", "..", "examples"))

	wanted := map[string]*tfprotov6.Schema{"provider talosupgrade": answer.Provider}
	for name, schema := range answer.ResourceSchemas {
		wanted["resource "+name] = schema
	}

	for name, schema := range answer.DataSourceSchemas {
		wanted["data "+name] = schema
	}

	if len(wanted) < 6 || len(answer.Functions) == 0 {
		t.Fatalf("%d schemas and %d functions", len(wanted), len(answer.Functions))
	}

	var missing []string

	for of, schema := range wanted {
		if len(schema.Block.BlockTypes) > 0 {
			t.Errorf("%s has nested blocks, which this test does not look into", of)
		}

		missing = append(missing, shown.without(of, schema.Block.Attributes)...)
	}

	for name := range answer.Functions {
		if !shown.calls["provider::talosupgrade::"+name] {
			missing = append(missing, "function "+name)
		}
	}

	slices.Sort(missing)

	for _, one := range missing {
		t.Errorf("%s is in no example", one)
	}
}

// examples is what the files below examples use.
type examples struct {
	// set holds "resource talosupgrade_cluster.drain.timeout".
	set map[string]bool
	// read holds, by "resource talosupgrade_cluster", the names that a file with
	// such a block or a reference to one selects from values.
	read map[string]map[string]bool
	// calls holds the functions.
	calls map[string]bool
}

// without are the attributes of a block that no example has, by their paths.
func (e examples) without(of string, attributes []*tfprotov6.SchemaAttribute) []string {
	kind, _, _ := strings.Cut(of, ".")

	var missing []string

	for _, attribute := range attributes {
		place := of + "." + attribute.Name

		if settable := attribute.Required || attribute.Optional; settable && !e.set[place] || !settable && !e.read[kind][attribute.Name] {
			missing = append(missing, place)
		}

		if attribute.NestedType != nil {
			missing = append(missing, e.without(place, attribute.NestedType.Attributes)...)
		}
	}

	return missing
}

func readExamples(t *testing.T, root string) examples {
	t.Helper()

	shown := examples{set: map[string]bool{}, read: map[string]map[string]bool{}, calls: map[string]bool{}}

	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".tf" {
			return err
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		file, problems := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
		if problems.HasErrors() {
			return problems
		}

		if body, ok := file.Body.(*hclsyntax.Body); ok {
			shown.add(body)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return shown
}

// add takes in one file.
func (e examples) add(file *hclsyntax.Body) {
	var kinds []string

	for _, block := range file.Blocks {
		inner := blocksOf(block)
		for _, one := range inner {
			kind := one.Type + " " + one.Labels[0]
			kinds = append(kinds, kind)

			for name, attribute := range one.Body.Attributes {
				e.give(kind+"."+name, attribute.Expr)
			}
		}
	}

	selected := map[string]bool{}

	// The walk has no errors of its own.
	_ = hclsyntax.VisitAll(file, func(node hclsyntax.Node) hcl.Diagnostics {
		switch expression := node.(type) {
		case *hclsyntax.ScopeTraversalExpr:
			kinds = append(kinds, references(expression.Traversal)...)
			selects(expression.Traversal, selected)
		case *hclsyntax.RelativeTraversalExpr:
			selects(expression.Traversal, selected)
		case *hclsyntax.FunctionCallExpr:
			e.calls[expression.Name] = true
		}

		return nil
	})

	for _, kind := range kinds {
		if e.read[kind] == nil {
			e.read[kind] = map[string]bool{}
		}

		for name := range selected {
			e.read[kind][name] = true
		}
	}
}

// blocksOf is a block of the provider's, or those in a check, which may have data
// sources of its own.
func blocksOf(block *hclsyntax.Block) []*hclsyntax.Block {
	switch block.Type {
	case "provider", "resource", "data":
		return []*hclsyntax.Block{block}
	case "check":
		return slices.DeleteFunc(slices.Clone(block.Body.Blocks), func(inner *hclsyntax.Block) bool { return inner.Type != "data" })
	default:
		return nil
	}
}

// give takes in that a place is set, and what is set within it: elements of lists
// and of maps are all at the same place as far as the schema is concerned.
func (e examples) give(place string, value hclsyntax.Expression) {
	e.set[place] = true

	switch value := value.(type) {
	case *hclsyntax.ObjectConsExpr:
		for _, item := range value.Items {
			key, problems := item.KeyExpr.Value(nil)
			if problems.HasErrors() {
				continue
			}

			e.give(place+"."+key.AsString(), item.ValueExpr)
			// Where the schema has a map, the key is a name and no attribute.
			e.inside(place, item.ValueExpr)
		}
	case *hclsyntax.TupleConsExpr:
		for _, element := range value.Exprs {
			e.inside(place, element)
		}
	case *hclsyntax.ForExpr:
		e.inside(place, value.ValExpr)
	}
}

// inside takes in an element of a list or a map.
func (e examples) inside(place string, element hclsyntax.Expression) {
	object, ok := element.(*hclsyntax.ObjectConsExpr)
	if !ok {
		return
	}

	for _, item := range object.Items {
		if key, problems := item.KeyExpr.Value(nil); !problems.HasErrors() {
			e.give(place+"."+key.AsString(), item.ValueExpr)
		}
	}
}

// references is the kind of the block that a traversal begins at, if it is one.
func references(traversal hcl.Traversal) []string {
	root := traversal.RootName()
	if strings.HasPrefix(root, "talosupgrade_") {
		return []string{"resource " + root}
	}

	if root != "data" || len(traversal) < 2 {
		return nil
	}

	if kind, ok := traversal[1].(hcl.TraverseAttr); ok {
		return []string{"data " + kind.Name}
	}

	return nil
}

// selects adds the names that a traversal selects.
func selects(traversal hcl.Traversal, selected map[string]bool) {
	for _, step := range traversal {
		if attribute, ok := step.(hcl.TraverseAttr); ok {
			selected[attribute.Name] = true
		}
	}
}
