// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// definitionFiles are the custom resources of the operators that upgrade Talos
// clusters, as far as they matter to an upgrade.
//
//go:embed crds/*.yaml
var definitionFiles embed.FS

// customGroups are the API groups of the definitions.
func customGroups() []string { return []string{"vitistack.io", "talos.alperen.cloud"} }

// servedPoll is how often a new kind is asked for.
const servedPoll = 20 * time.Millisecond

// yamlLookahead is how much of a manifest tells YAML from JSON.
const yamlLookahead = 1 << 12

// definitions reads the embedded custom resource definitions.
func definitions() ([]*unstructured.Unstructured, error) {
	paths, err := fs.Glob(definitionFiles, "crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the custom resources: %w", err)
	}

	var found []*unstructured.Unstructured

	for _, path := range paths {
		content, err := definitionFiles.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the custom resources: %w", err)
		}

		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), yamlLookahead)

		for {
			var object unstructured.Unstructured

			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", path, err)
			}

			if len(object.Object) > 0 {
				found = append(found, &object)
			}
		}
	}

	return found, nil
}

// installDefinitions creates the custom resources of the operators, and returns
// once the API server serves them.
func installDefinitions(ctx context.Context, client *client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	wanted, err := definitions()
	if err != nil {
		return err
	}

	kinds := client.objects.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})

	for _, definition := range wanted {
		if _, err := kinds.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the custom resource %s: %w", definition.GetName(), err)
		}
	}

	for _, definition := range wanted {
		if err := awaitServed(ctx, client, definition); err != nil {
			return err
		}
	}

	return nil
}

// awaitServed returns once objects of the kind can be listed.
func awaitServed(ctx context.Context, client *client, definition *unstructured.Unstructured) error {
	group, _, groupErr := unstructured.NestedString(definition.Object, "spec", "group")
	plural, _, pluralErr := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, versionErr := unstructured.NestedSlice(definition.Object, "spec", "versions")

	if err := errors.Join(groupErr, pluralErr, versionErr); err != nil {
		return fmt.Errorf("reading the custom resource %s: %w", definition.GetName(), err)
	}

	for _, entry := range versions {
		version, ok := entry.(map[string]any)
		if !ok {
			return fmt.Errorf("reading the custom resource %s: a version of it is no object", definition.GetName())
		}

		name, _, err := unstructured.NestedString(version, "name")
		if err != nil {
			return fmt.Errorf("reading the custom resource %s: %w", definition.GetName(), err)
		}

		if err := awaitListed(ctx, client, schema.GroupVersionResource{Group: group, Version: name, Resource: plural}); err != nil {
			return err
		}
	}

	return nil
}

func awaitListed(ctx context.Context, client *client, resource schema.GroupVersionResource) error {
	ticker := time.NewTicker(servedPoll)
	defer ticker.Stop()

	for {
		_, err := client.objects.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return nil
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s is served: %w (last: %w)", resource.GroupResource(), ctx.Err(), err)
		}
	}
}
