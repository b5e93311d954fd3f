// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The fields that are read or written in several places.
const (
	keyMetadata        = "metadata"
	keyAnnotations     = "annotations"
	keyLabels          = "labels"
	keyResourceVersion = "resourceVersion"
	keyGeneration      = "generation"
	keyName            = "name"
	keySpec            = "spec"
	keyState           = "state"
	keyVersion         = "version"
	keyKubeVersion     = "kubeVersion"
	keyMessage         = "message"
)

// prefix is what the keys of the annotation protocol begin with.
const prefix = "upgrade.vitistack.io/"

// section is an object within an object; nil where there is none.
func section(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}

	return object
}

// text is a string within an object; empty where there is none.
func text(object map[string]any, path ...string) string {
	last := len(path) - 1
	found, _ := section(object, path[:last]...)[path[last]].(string)

	return found
}

func annotationsOf(object map[string]any) map[string]string {
	return stringsOf(section(object, keyMetadata, keyAnnotations))
}

func stringsOf(given map[string]any) map[string]string {
	if given == nil {
		return nil
	}

	all := make(map[string]string, len(given))
	for key, value := range given {
		all[key], _ = value.(string)
	}

	return all
}

// copyOf is an object as it would come over the wire: whole numbers are int64.
func copyOf(object map[string]any) (map[string]any, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}

	var copied map[string]any
	if err := utiljson.Unmarshal(encoded, &copied); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}

	return copied, nil
}

// merged is what a JSON merge patch makes of an object, which stays as it is.
func merged(object, patch map[string]any) map[string]any {
	result := maps.Clone(object)
	if result == nil {
		result = map[string]any{}
	}

	for key, value := range patch {
		switch wanted := value.(type) {
		case nil:
			delete(result, key)
		case map[string]any:
			standing, _ := result[key].(map[string]any)
			result[key] = merged(standing, wanted)
		default:
			result[key] = wanted
		}
	}

	return result
}

// plain is a version without "v".
func plain(version string) string { return strings.TrimPrefix(version, "v") }
