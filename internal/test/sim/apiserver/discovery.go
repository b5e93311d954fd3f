// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// shortNames returns the names that people use for a resource.
func shortNames(resource string) []string {
	return map[string][]string{
		resourceNodes: {"no"}, resourcePods: {"po"}, resourceConfigMaps: {"cm"}, resourceNamespaces: {"ns"}, resourceBudgets: {"pdb"},
		resourceReplicaSets: {"rs"}, resourceDaemonSets: {"ds"}, "statefulsets": {"sts"}, "replicationcontrollers": {"rc"},
		"persistentvolumeclaims": {"pvc"}, "persistentvolumes": {"pv"}, resourceEvents: {"ev"},
		resourceDeployments: {"deploy"}, "services": {"svc"}, "serviceaccounts": {"sa"},
	}[resource]
}

// part is a part of an object that has its own requests, with the kind that it has if that is another one.
type part struct {
	name, group, version, kind string
	verbs                      []string
}

// parts returns the parts of the objects of a resource.
func (t *table) parts() []part {
	switch {
	case t == nil:
		return nil
	case t.name == resourcePods:
		return []part{{name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: []string{verbCreate}}}
	case t.name == resourceNodes, t.custom != nil && t.custom.Status:
		return []part{{name: "status", kind: t.kind, verbs: []string{verbGet, verbPatch, verbUpdate}}}
	default:
		return nil
	}
}

// has reports whether objects have a part with its own requests.
func (t *table) has(name string) bool {
	return name == "" || slices.ContainsFunc(t.parts(), func(one part) bool { return one.name == name })
}

// about returns what is served: below a group and version the resources, above that the groups. Its errors are
// answers.
func (s *Server) about(asked *call) (answer, error) {
	var found runtime.Object

	switch parts := strings.Split(strings.Trim(asked.path, "/"), "/"); {
	case asked.target.version.Version != "":
		found = s.resources(asked.target.version)
	case asked.path == "/api":
		found = &metav1.APIVersions{Versions: []string{corev1.SchemeGroupVersion.Version}}
	case asked.path == "/apis":
		found = &metav1.APIGroupList{Groups: s.groups()}
	case len(parts) == 2 && parts[0] == "apis":
		groups := s.groups()
		if at := slices.IndexFunc(groups, func(one metav1.APIGroup) bool { return one.Name == parts[1] }); at >= 0 {
			found = &groups[at]
		}
	case strings.HasPrefix(asked.path, "/openapi/v3"):
		found = s.openAPI(strings.Trim(strings.TrimPrefix(asked.path, "/openapi/v3"), "/"))
	case asked.path == "/version":
		found = document{s.serverVersion()}
	case asked.path == "/readyz", asked.path == "/livez", asked.path == "/healthz":
		found = text("ok")
	}

	if found == nil {
		return answer{}, notServed()
	}

	return answer{http.StatusOK, corev1.SchemeGroupVersion, found}, nil
}

// groups returns the groups of the resources, except the one without a name, with their versions.
func (s *Server) groups() []metav1.APIGroup {
	var groups []metav1.APIGroup

	for _, of := range s.tables {
		if of.version.Group == "" {
			continue
		}

		at := slices.IndexFunc(groups, func(one metav1.APIGroup) bool { return one.Name == of.version.Group })
		if at < 0 {
			at = len(groups)
			groups = append(groups, metav1.APIGroup{Name: of.version.Group})
		}

		version := metav1.GroupVersionForDiscovery{GroupVersion: of.version.String(), Version: of.version.Version}
		if group := &groups[at]; !slices.Contains(group.Versions, version) {
			group.Versions = append(group.Versions, version)
			group.PreferredVersion = group.Versions[0]
		}
	}

	return groups
}

// resources returns the resources of a group and version; nil if there are none.
func (s *Server) resources(version schema.GroupVersion) runtime.Object {
	list := &metav1.APIResourceList{GroupVersion: version.String()}

	for _, of := range s.tables {
		if of.version != version {
			continue
		}

		verbs := append([]string{verbGet, verbList, verbWatch}, of.verbs...)
		slices.Sort(verbs)

		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: of.name, SingularName: strings.ToLower(of.kind), Kind: of.kind, Namespaced: of.namespaced, Verbs: verbs, ShortNames: shortNames(of.name),
		})

		for _, one := range of.parts() {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: of.name + "/" + one.name, Kind: one.kind, Group: one.group, Version: one.version, Namespaced: of.namespaced, Verbs: one.verbs,
			})
		}
	}

	if len(list.APIResources) == 0 {
		return nil
	}

	return list
}

// serverVersion returns the version of an API server that answers. If none of the machines has one, it is that of
// another cluster, which has no version in the model.
func (s *Server) serverVersion() apiversion.Info {
	image := ""

	for _, state := range s.world.KubeStates() {
		image = cmp.Or(image, state.StaticPods[model.APIServerName].Image)
	}

	version := versionOf(image)
	numbers := strings.SplitN(version+"..", ".", 3)

	return apiversion.Info{Major: numbers[0], Minor: numbers[1], GitVersion: "v" + version, Platform: "linux/amd64"}
}

// text is an answer in plain text.
type text string

// GetObjectKind implements [runtime.Object].
func (text) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (t text) DeepCopyObject() runtime.Object { return t }

// document is an answer that is not an object of the API.
type document struct{ content any }

// GetObjectKind implements [runtime.Object].
func (document) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (d document) DeepCopyObject() runtime.Object { return d }

// openAPI returns, below a path, which requests the resources of a group and version take, and above that where
// this is described. It has only what kubectl looks for to know that the server detects unknown fields.
func (s *Server) openAPI(below string) runtime.Object {
	groups, paths := map[string]any{}, map[string]any{}

	for _, of := range s.tables {
		group := "apis/" + of.version.String()
		if of.version.Group == "" {
			group = "api/" + of.version.Version
		}

		groups[group] = map[string]string{"serverRelativeURL": "/openapi/v3/" + group}

		if group == below {
			paths["/"+group+"/"+of.name+"/{name}"] = map[string]any{"patch": map[string]any{
				"x-kubernetes-group-version-kind": map[string]string{"group": of.version.Group, "version": of.version.Version, "kind": of.kind},
				"parameters":                      []any{map[string]string{"name": "fieldValidation", "in": "query"}, map[string]string{"name": "dryRun", "in": "query"}},
			}}
		}
	}

	switch {
	case below == "":
		return document{map[string]any{"paths": groups}}
	case len(paths) > 0:
		return document{map[string]any{"openapi": "3.0.0", "paths": paths}}
	default:
		return nil
	}
}
