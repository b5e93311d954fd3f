// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// verifyEdit makes sure that two machine configurations mean the same but for
// the image at the path of one document. It does not rely on how the edit was
// made.
func verifyEdit(before, after []byte, document int, path []string, image string) error {
	wanted, err := decodeDocuments(before)
	if err != nil {
		return err
	}

	got, err := decodeDocuments(after)
	if err != nil {
		return fmt.Errorf("%w: with another image in it, it would not be valid any more", cluster.ErrRefused)
	}

	if document >= len(wanted) || !set(wanted[document], path, image) || !reflect.DeepEqual(wanted, got) {
		return fmt.Errorf("%w: the image cannot be changed without changing something else, as where YAML anchors share it", cluster.ErrRefused)
	}

	return nil
}

// decodeDocuments decodes all documents of a stream into plain values.
func decodeDocuments(content []byte) ([]any, error) {
	var documents []any

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document any

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%w: it is not valid YAML: %s", cluster.ErrRefused, withoutQuotes(err.Error()))
		}

		documents = append(documents, document)
	}
}

// set puts a text at a path, through mappings that it makes where there are
// none; false when something else is in the way.
func set(value any, path []string, text string) bool {
	for i, name := range path {
		mapping, ok := value.(map[string]any)
		if !ok {
			return false
		}

		if i == len(path)-1 {
			mapping[name] = text

			return true
		}

		if mapping[name] == nil {
			mapping[name] = map[string]any{}
		}

		value = mapping[name]
	}

	return false
}

// sameMeaning tells whether two machine configurations mean the same.
func sameMeaning(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}

	first, err := decodeDocuments(a)
	if err != nil {
		return false
	}

	second, err := decodeDocuments(b)

	return err == nil && reflect.DeepEqual(first, second)
}
