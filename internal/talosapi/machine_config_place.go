// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// imageKey is the field that names an image, in documents of both generations.
const imageKey = "image"

// imagePlace is where a machine configuration names the image of a component.
type imagePlace struct {
	// kind is the document that Talos 1.14 and later have for the component;
	// where there is one, v1alpha1 does not count.
	kind string
	// path leads through the v1alpha1 document, which has no kind.
	path []string
}

// placeOf tells where the image of a component is; false for what has none.
func placeOf(component cluster.Component) (imagePlace, bool) {
	switch component {
	case cluster.Kubelet:
		return imagePlace{"KubeletConfig", []string{"machine", "kubelet", imageKey}}, true
	case cluster.APIServer:
		return imagePlace{"KubeAPIServerConfig", []string{"cluster", "apiServer", imageKey}}, true
	case cluster.ControllerManager:
		return imagePlace{"KubeControllerManagerConfig", []string{"cluster", "controllerManager", imageKey}}, true
	case cluster.Scheduler:
		return imagePlace{"KubeSchedulerConfig", []string{"cluster", "scheduler", imageKey}}, true
	case cluster.Proxy:
		return imagePlace{"KubeProxyConfig", []string{"cluster", "proxy", imageKey}}, true
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
		return named, []string{imageKey}, nil
	case general >= 0:
		return general, p.path, nil
	default:
		return 0, nil, fmt.Errorf("%w: it has neither a document %s nor one of v1alpha1", cluster.ErrRefused, p.kind)
	}
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
