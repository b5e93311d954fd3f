// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// editImage is the machine configuration with another image for a component.
// Everything else in it stays as it is, byte for byte: the text is not written
// anew from what was understood of it. It is nil when the image is named
// already. Errors wrap cluster.ErrConflict when the configuration names
// another image than the expected one, cluster.ErrNotFound when it has no place
// for the image, and cluster.ErrRefused when it cannot be changed safely; they
// quote nothing but images.
func editImage(content []byte, change cluster.ImageChange) ([]byte, error) {
	place, ok := placeOf(change.Component)
	if !ok {
		return nil, fmt.Errorf("%w: no machine configuration names an image for %s", cluster.ErrRefused, change.Component)
	}

	documents, err := parseDocuments(content)
	if err != nil {
		return nil, err
	}

	index, path, err := place.pick(documents)
	if err != nil {
		return nil, err
	}

	found, err := findSpot(documents[index], path)
	if err != nil {
		return nil, err
	}

	if err := place.assertSection(found, path); err != nil {
		return nil, err
	}

	switch found.image {
	case change.To:
		return nil, nil
	case change.From:
	default:
		return nil, fmt.Errorf("%w: it names %s for %s, and not %s",
			cluster.ErrConflict, named(found.image), change.Component, named(change.From))
	}

	made, err := found.splice(content, change.To)
	if err != nil {
		return nil, err
	}

	edited := made.apply(content)

	if err := verifyEdit(content, edited, index, path, change.To); err != nil {
		return nil, err
	}

	return edited, nil
}

// named spells an image for people.
func named(image string) string {
	if image == "" {
		return "no image"
	}

	return image
}

// parseDocuments reads the roots of all documents of a stream. Lines and
// columns of the nodes are those of the whole stream.
func parseDocuments(content []byte) ([]*yaml.Node, error) {
	var documents []*yaml.Node

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document yaml.Node

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%w: it is not valid YAML: %s", cluster.ErrRefused, withoutQuotes(err.Error()))
		}

		root := &yaml.Node{}
		if len(document.Content) > 0 {
			root = document.Content[0]
		}

		documents = append(documents, root)
	}
}

// spot is where an image is named in a document, or would be.
type spot struct {
	// image is what is named, empty for none.
	image string
	// parent is the key that at belongs to; nil for the root of a document.
	parent *yaml.Node
	// at is the image's own value if missing is empty. Otherwise it is the
	// innermost mapping that is there, or a null in the place of one.
	at *yaml.Node
	// missing are the keys that at lacks.
	missing []string
}

// findSpot follows the path through a document as far as it goes.
func findSpot(root *yaml.Node, path []string) (spot, error) {
	here := spot{at: root}

	for i, name := range path {
		if isNull(here.at) {
			here.missing = path[i:]

			return here, nil
		}

		if err := assertPlainMapping(here.at); err != nil {
			return spot{}, err
		}

		key, value := child(here.at, name)
		if key == nil {
			here.missing = path[i:]

			return here, nil
		}

		here.parent, here.at = key, value
	}

	if here.at.Kind != yaml.ScalarNode || here.at.Anchor != "" || !isNull(here.at) && here.at.ShortTag() != "!!str" {
		return spot{}, fmt.Errorf("%w: line %d: the image is no plain text, but a YAML alias, an anchor or another type",
			cluster.ErrRefused, here.at.Line)
	}

	if !isNull(here.at) {
		here.image = here.at.Value
	}

	return here, nil
}

// assertPlainMapping refuses what stands for a mapping elsewhere: a change
// would show at more than one place, or not where it was made.
func assertPlainMapping(node *yaml.Node) error {
	isMerge := func(key *yaml.Node) bool { return key.ShortTag() == "!!merge" }

	switch {
	case node.Kind == yaml.AliasNode:
		return fmt.Errorf("%w: line %d: a YAML alias stands where the image is named", cluster.ErrRefused, node.Line)
	case node.Kind != yaml.MappingNode:
		return fmt.Errorf("%w: line %d: what should hold the image is no mapping", cluster.ErrRefused, node.Line)
	case slices.ContainsFunc(node.Content, isMerge):
		return fmt.Errorf("%w: line %d: a YAML merge key stands where the image is named", cluster.ErrRefused, node.Line)
	default:
		return nil
	}
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }
