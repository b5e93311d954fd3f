// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// imageKey is the field that names an image, in documents of both generations.
	imageKey = "image"
	// installKind is the document that Talos 1.14 and later have for what a
	// machine is installed from.
	installKind = "UnattendedInstallConfig"
)

// imagePlace is where a machine configuration names the image of a component.
type imagePlace struct {
	// kind is the document that Talos 1.14 and later have for the component;
	// where there is one, v1alpha1 does not count.
	kind string
	// named leads through that document.
	named []string
	// path leads through the v1alpha1 document, which has no kind.
	path []string
	// section is how many keys of path must be there. Where they are not, the
	// configuration has no place for the image, and none is made.
	section int
}

// placeOf tells where the image of a component is; false for what has none.
func placeOf(component cluster.Component) (imagePlace, bool) {
	inRoot := []string{imageKey}

	switch component {
	case cluster.Kubelet:
		return imagePlace{kind: "KubeletConfig", named: inRoot, path: []string{"machine", "kubelet", imageKey}}, true
	case cluster.APIServer:
		return imagePlace{kind: "KubeAPIServerConfig", named: inRoot, path: []string{"cluster", "apiServer", imageKey}}, true
	case cluster.ControllerManager:
		return imagePlace{kind: "KubeControllerManagerConfig", named: inRoot, path: []string{"cluster", "controllerManager", imageKey}}, true
	case cluster.Scheduler:
		return imagePlace{kind: "KubeSchedulerConfig", named: inRoot, path: []string{"cluster", "scheduler", imageKey}}, true
	case cluster.Proxy:
		return imagePlace{kind: "KubeProxyConfig", named: inRoot, path: []string{"cluster", "proxy", imageKey}}, true
	case cluster.Installer:
		// A section of v1alpha1 has a disk in it: one with an image alone would
		// have the node installed somewhere.
		return imagePlace{kind: installKind, named: []string{"installer", imageKey}, path: []string{"machine", "install", imageKey}, section: 2}, true
	case cluster.Manifests:
		return imagePlace{}, false
	default:
		return imagePlace{}, false
	}
}

// documentNames are the components by the kinds of the documents they have from
// Talos 1.14 on.
func documentNames() map[string]cluster.Component {
	names := map[string]cluster.Component{}

	for _, component := range cluster.Components(cluster.ControlPlane) {
		if place, ok := placeOf(component); ok {
			names[place.kind] = component
		}
	}

	return names
}

// pick finds the document that decides about the image, and the path in it.
func (p imagePlace) pick(documents []*yaml.Node) (index int, path []string, err error) {
	named, general := -1, -1

	for i, document := range documents {
		switch kind := kindOf(document); {
		case document.Kind != yaml.MappingNode:
		case kind == p.kind && named >= 0:
			return 0, nil, fmt.Errorf("%w: it has more than one document %s", cluster.ErrRefused, kind)
		case kind == p.kind:
			named = i
		case kind == "" && general >= 0:
			return 0, nil, fmt.Errorf("%w: it has more than one document without a kind", cluster.ErrRefused)
		case kind == "":
			general = i
		}
	}

	switch {
	case named >= 0:
		return named, p.named, nil
	case general >= 0:
		return general, p.path, nil
	case p.section > 0:
		return 0, nil, p.noSection()
	default:
		return 0, nil, fmt.Errorf("%w: it has neither a document %s nor one of v1alpha1", cluster.ErrRefused, p.kind)
	}
}

// assertSection makes sure that the part of the configuration that the image
// belongs to is there.
func (p imagePlace) assertSection(found spot, path []string) error {
	if p.section == 0 || !slices.Equal(path, p.path) {
		return nil
	}

	there := len(path) - len(found.missing)
	if len(found.missing) > 0 && isNull(found.at) {
		there--
	}

	if there < p.section {
		return p.noSection()
	}

	return nil
}

func (p imagePlace) noSection() error {
	return fmt.Errorf("%w: it has neither %s nor a document %s, and none is added",
		cluster.ErrNotFound, strings.Join(p.path[:p.section], "."), p.kind)
}

// kindOf is the kind of a document, empty for v1alpha1.
func kindOf(document *yaml.Node) string {
	if _, value := child(document, "kind"); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}

	return ""
}

// child finds a key of a mapping, and its value; nil when there is none.
func child(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping.Kind != yaml.MappingNode {
		return nil, nil
	}

	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if at := mapping.Content[i]; at.Kind == yaml.ScalarNode && at.Value == name {
			return at, mapping.Content[i+1]
		}
	}

	return nil, nil
}
