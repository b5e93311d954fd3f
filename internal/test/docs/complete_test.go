// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// parsed is a configuration, or a part of one.
type parsed struct {
	body *hclsyntax.Body
	text string
}

func parse(name, text string) (parsed, error) {
	file, diagnostics := hclsyntax.ParseConfig([]byte(text), name, hcl.InitialPos)
	if diagnostics.HasErrors() {
		return parsed{}, errors.Join(diagnostics.Errs()...)
	}

	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return parsed{}, fmt.Errorf("%s has a body of type %T", name, file.Body)
	}

	return parsed{body: body, text: text}, nil
}

func (p parsed) source(at hcl.Range) string { return p.text[at.Start.Byte:at.End.Byte] }

// declarations returns what the configuration declares, each as a configuration of its own, by the address under
// which others refer to it.
func (p parsed) declarations() map[string]string {
	found := map[string]string{}

	for _, block := range p.body.Blocks {
		whole := p.source(hcl.RangeBetween(block.TypeRange, block.CloseBraceRange)) + "\n"

		switch labels := strings.Join(block.Labels, "."); block.Type {
		case "resource":
			found[labels] = whole
		case "variable":
			found["var."+labels] = whole
		case "action", "data", "ephemeral", "module":
			found[block.Type+"."+labels] = whole
		case "locals":
			for name, attribute := range block.Body.Attributes {
				found["local."+name] = "locals {\n" + p.source(attribute.SrcRange) + "\n}\n"
			}
		case "provider":
			if alias, ok := block.Body.Attributes["alias"]; ok {
				name, _ := alias.Expr.Value(nil)
				found[labels+"."+name.AsString()] = whole
			}
		case "check":
			// A data source in a check can only be referred to in the check.
			for _, inner := range block.Body.Blocks {
				if inner.Type == "data" {
					found["data."+strings.Join(inner.Labels, ".")] = ""
				}
			}
		}
	}

	return found
}

// actions returns the addresses of the actions that the configuration declares.
func (p parsed) actions() []string {
	var found []string

	for _, block := range p.body.Blocks {
		if block.Type == "action" {
			found = append(found, "action."+strings.Join(block.Labels, "."))
		}
	}

	return found
}

// references returns the addresses to which the configuration refers. Some of them, such as "each.value", cannot be
// declared.
func (p parsed) references() []string {
	found := map[string]bool{}

	for _, attribute := range attributesOf(p.body) {
		for _, traversal := range hclsyntax.Variables(attribute.Expr) {
			steps := []string{traversal.RootName()}

			for _, step := range traversal[1:] {
				if name, ok := step.(hcl.TraverseAttr); ok {
					steps = append(steps, name.Name)
				} else {
					break
				}
			}

			length := 2
			if steps[0] == "action" || steps[0] == "data" || steps[0] == "ephemeral" {
				length = 3
			}

			found[strings.Join(steps[:min(length, len(steps))], ".")] = true
		}
	}

	return slices.Sorted(maps.Keys(found))
}

func attributesOf(body *hclsyntax.Body) []*hclsyntax.Attribute {
	all := slices.Collect(maps.Values(body.Attributes))
	for _, block := range body.Blocks {
		all = append(all, attributesOf(block.Body)...)
	}

	return all
}

// completed returns what the configuration refers to, does not declare, and one of the sources declares, including
// everything that those declarations need.
func (p parsed) completed(sources []map[string]string) (rest string, taken []string, err error) {
	known := p.declarations()
	wanted := p.references()

	for len(wanted) > 0 {
		address := wanted[0]
		wanted = wanted[1:]

		if _, ok := known[address]; ok {
			continue
		}

		for _, source := range sources {
			text := source[address]
			if text == "" {
				continue
			}

			added, err := parse(address, text)
			if err != nil {
				return "", nil, err
			}

			known[address] = text
			rest += text
			taken = append(taken, address)
			wanted = append(wanted, added.references()...)

			break
		}
	}

	return rest, taken, nil
}

// uses returns a data source for each configuration of this module's provider: without one, the command line does not
// check it.
func (p parsed) uses() string {
	var text strings.Builder

	for _, block := range p.body.Blocks {
		if block.Type != "provider" || block.Labels[0] != shortName(ours) || block.Body.Attributes["for_each"] != nil {
			continue
		}

		argument := ""

		if alias, ok := block.Body.Attributes["alias"]; ok {
			name, _ := alias.Expr.Value(nil)
			argument = "provider = " + shortName(ours) + "." + name.AsString()
		}

		fmt.Fprintf(&text, "data \"talosupgrade_compatibility\" \"used_%d\" {\n  %s\n}\n", block.TypeRange.Start.Line, argument)
	}

	return text.String()
}

// isQuery reports whether the configuration has list blocks, which the command line expects in a file of its own
// kind.
func (p parsed) isQuery() bool {
	return slices.ContainsFunc(p.body.Blocks, func(block *hclsyntax.Block) bool { return block.Type == "list" })
}

// providers returns the local names of the providers that the configuration uses.
func (p parsed) providers() []string {
	found := map[string]bool{}

	var walk func(body *hclsyntax.Body)

	walk = func(body *hclsyntax.Body) {
		for _, block := range body.Blocks {
			switch block.Type {
			case "provider":
				found[block.Labels[0]] = true
			case "action", "resource", "data", "ephemeral", "list":
				name, _, _ := strings.Cut(block.Labels[0], "_")
				found[name] = true
			case "check":
				walk(block.Body)
			}
		}
	}
	walk(p.body)

	_ = hclsyntax.VisitAll(p.body, func(node hclsyntax.Node) hcl.Diagnostics {
		if call, ok := node.(*hclsyntax.FunctionCallExpr); ok {
			if parts := strings.Split(call.Name, "::"); len(parts) == 3 && parts[0] == "provider" {
				found[parts[1]] = true
			}
		}

		return nil
	})

	// It is built in, and has terraform_data.
	delete(found, "terraform")

	return slices.Sorted(maps.Keys(found))
}

// required returns the local names of the providers for which the configuration has a source, and reports whether it
// has required_providers at all.
func (p parsed) required() (names []string, says bool) {
	for _, block := range p.body.Blocks {
		if block.Type != "terraform" {
			continue
		}

		for _, inner := range block.Body.Blocks {
			if inner.Type == "required_providers" {
				names = append(names, slices.Collect(maps.Keys(inner.Body.Attributes))...)
				says = true
			}
		}
	}

	return names, says
}
