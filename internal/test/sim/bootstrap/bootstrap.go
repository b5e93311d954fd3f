// SPDX-License-Identifier: MPL-2.0

// Package bootstrap renders the manifests that a control plane of the simulated cluster offers: what Talos calls
// bootstrap manifests.
package bootstrap

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Manifest is one group of objects, under the ID that Talos gives it.
type Manifest struct {
	ID      string
	Objects []map[string]any
}

// files are templates of YAML documents, each named by its ID.
//
//go:embed manifests/*.yaml
var files embed.FS

// Render returns the manifests of a control plane in a state, sorted by ID; none for a worker. Each call makes its
// own objects, whose numbers are int64 or float64.
func Render(state model.NodeState) []Manifest {
	if state.Role != model.ControlPlane {
		return nil
	}

	// The embedded files can be read and rendered, whatever the images are: the tests of this package cover all of
	// them.
	names, _ := fs.Glob(files, "manifests/*.yaml")

	var manifests []Manifest

	for _, name := range names {
		objects, _ := render(name, state)
		if len(objects) > 0 {
			manifests = append(manifests, Manifest{ID: strings.TrimSuffix(path.Base(name), ".yaml"), Objects: objects})
		}
	}

	slices.SortFunc(manifests, func(a, b Manifest) int { return strings.Compare(a.ID, b.ID) })

	return manifests
}

// render returns the objects of one file; none if the state does not need it.
func render(name string, state model.NodeState) ([]map[string]any, error) {
	source, err := template.ParseFS(files, name)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}

	var text bytes.Buffer

	if err := source.Execute(&text, state); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}

	documents := yaml.NewYAMLReader(bufio.NewReader(&text))

	var objects []map[string]any

	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}

		if err != nil {
			return nil, fmt.Errorf("splitting %s: %w", name, err)
		}

		object, err := decode(document)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}

		if len(object) > 0 {
			objects = append(objects, object)
		}
	}
}

// decode keeps whole numbers whole, as Kubernetes does.
func decode(document []byte) (map[string]any, error) {
	content, err := yaml.ToJSON(document)
	if err != nil {
		return nil, fmt.Errorf("converting to JSON: %w", err)
	}

	var object map[string]any

	if err := json.Unmarshal(content, &object); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}

	return object, nil
}
