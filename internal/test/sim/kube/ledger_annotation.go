// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// noted is a key of the protocol on an object, as of a resource version.
type noted struct {
	value   string
	stands  bool
	version uint64
}

// annotated tells of each key of the protocol that a request changed on an object.
// Of a patch these are the keys that it is about, and no other ones: what else the
// resulting object shows, somebody else has written, and that is told of when its
// own line is read. Lines may be read in another order than the writes were done.
func (l *ledger) annotated(event auditEvent) bool {
	name, object := objectName(event), event.object()
	known := l.annotations[name]

	if event.Verb == "delete" {
		delete(l.annotations, name)

		return l.tellAnnotations(event, name, changesBetween(standing(known), nil))
	}

	now := protocolKeys(object.Metadata.Annotations)

	asked, partial := patchedKeys(event)
	if !partial {
		asked = slices.Concat(slices.Collect(maps.Keys(standing(known))), slices.Collect(maps.Keys(now)))
	}

	if known == nil {
		known = map[string]noted{}
		l.annotations[name] = known
	}

	before, after := map[string]string{}, map[string]string{}
	version := object.version()

	for _, key := range asked {
		was := known[key]
		if version < was.version {
			continue
		}

		value, stands := now[key]
		known[key] = noted{value, stands, version}

		if was.stands {
			before[key] = was.value
		}

		if stands {
			after[key] = value
		}
	}

	return l.tellAnnotations(event, name, changesBetween(before, after))
}

func (l *ledger) tellAnnotations(event auditEvent, name string, changes []change) bool {
	node := ""
	if event.ObjectRef.Resource == "nodes" {
		node = event.name()
	}

	for _, change := range changes {
		l.recorder.Record(node, history.KindAnnotation, map[string]string{
			"object": name, "key": change.key, "value": change.value, "by": event.by(),
		})
	}

	return len(changes) > 0
}

// standing are the values that an object has.
func standing(known map[string]noted) map[string]string {
	values := map[string]string{}

	for key, noted := range known {
		if noted.stands {
			values[key] = noted.value
		}
	}

	return values
}

// protocolKeys are the annotations of the protocol, without their prefix.
func protocolKeys(annotations map[string]string) map[string]string {
	keys := map[string]string{}

	for key, value := range annotations {
		if short, ours := strings.CutPrefix(key, annotationPrefix); ours {
			keys[short] = value
		}
	}

	return keys
}

// patchedKeys are the keys of the protocol that a patch is about; partial is false
// where the request says how the whole object is to be, or where nobody can tell.
func patchedKeys(event auditEvent) (keys []string, partial bool) {
	if event.Verb != "patch" {
		return nil, false
	}

	var body struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"annotations"`
		} `json:"metadata"`
	}

	if json.Unmarshal(event.RequestObject, &body) != nil {
		return nil, false
	}

	for key := range body.Metadata.Annotations {
		if short, ours := strings.CutPrefix(key, annotationPrefix); ours {
			keys = append(keys, short)
		}
	}

	return keys, true
}

// objectName is "KubernetesCluster/tenant-a/prod".
func objectName(event auditEvent) string {
	kind := map[string]string{
		"nodes": "Node", "configmaps": "ConfigMap", "kubernetesclusters": "KubernetesCluster",
		"taloscontrolplanes": "TalosControlPlane", "talosworkers": "TalosWorker", "talosmachines": "TalosMachine",
	}[event.ObjectRef.Resource]

	return strings.Join([]string{kind, event.ObjectRef.Namespace, event.name()}, "/")
}
