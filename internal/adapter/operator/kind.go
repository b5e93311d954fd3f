// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Kind is what may act on an object.
type Kind string

const (
	// Plain is an object of Kubernetes itself, such as a ConfigMap: nobody acts on
	// what its annotations say.
	Plain Kind = "plain"
	// Annotated is any other custom resource: a controller that follows the
	// annotation protocol may act on it.
	Annotated Kind = "annotated"
	// Vitistack is a KubernetesCluster: its operator follows the annotation
	// protocol, and keeps a Secret beside the object.
	Vitistack Kind = "vitistack"
	// Declarative is a TalosControlPlane: its operator brings the cluster to what
	// the object says, and cannot be held.
	Declarative Kind = "declarative"
)

const (
	vitistackVersion   = "vitistack.io/v1alpha1"
	vitistackKind      = "KubernetesCluster"
	declarativeVersion = "talos.alperen.cloud/v1alpha1"
	declarativeKind    = "TalosControlPlane"
	workerKind         = "TalosWorker"
	machineKind        = "TalosMachine"
)

// KindOf tells by the kind of the object what may act on it.
func KindOf(of cluster.Reference) Kind {
	of, _ = Complete(of)

	group, _, found := strings.Cut(of.APIVersion, "/")

	switch {
	case !found, !strings.Contains(group, "."):
		// The group of a custom resource is a domain with a dot.
		return Plain
	case of.Kind == vitistackKind && group == groupOf(vitistackVersion):
		return Vitistack
	case of.Kind == declarativeKind && group == groupOf(declarativeVersion):
		return Declarative
	default:
		return Annotated
	}
}

// Complete fills in the API version of a kind that is known here, where none is
// given. It is false where the API version is neither given nor known.
func Complete(of cluster.Reference) (cluster.Reference, bool) {
	if of.APIVersion != "" {
		return of, true
	}

	switch of.Kind {
	case "ConfigMap":
		of.APIVersion = "v1"
	case vitistackKind:
		of.APIVersion = vitistackVersion
	case declarativeKind:
		of.APIVersion = declarativeVersion
	}

	return of, of.APIVersion != ""
}

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")

	return group
}
