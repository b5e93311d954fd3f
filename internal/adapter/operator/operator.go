// SPDX-License-Identifier: MPL-2.0

// Package operator accesses controllers that may upgrade the same cluster: it reads what their objects report,
// keeps them from acting, asks them to act, and reads the credentials that one of them keeps.
//
// The object determines the controller, see [KindOf]. All of them are accessed through the ports of package
// cluster, and every change is conditional on what was read before, because the controllers write the same objects
// all the time.
package operator

import (
	"context"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Access is access to the objects and Secrets of an operator.
type Access interface {
	cluster.ObjectAccess
	cluster.SecretAccess
}

// New returns the operator that may act on the object, according to [KindOf]. It makes no calls.
func New(of cluster.Reference, access Access) cluster.Operator {
	of, _ = Complete(of)

	switch KindOf(of) {
	case Vitistack:
		return &vitistack{annotated: annotated{of: of, access: access}}
	case Declarative:
		return &declarative{of: of, access: access}
	case Annotated:
		return &annotated{of: of, access: access}
	default:
		return &bystander{of: of, access: access}
	}
}

// bystander is an object that no operator acts on.
type bystander struct {
	of     cluster.Reference
	access Access
}

func (b *bystander) String() string { return b.of.String() }

// Report returns what the annotations say, without the hold, which has no effect on such an object.
func (b *bystander) Report(ctx context.Context) (cluster.OperatorReport, error) {
	found, err := b.access.Object(ctx, b.of)
	if err != nil {
		return cluster.OperatorReport{}, err
	}

	report := reported(b.of, found)
	report.Passive, report.Hold, report.Unhold = true, "", ""

	return report, nil
}

func (b *bystander) Hold(context.Context, string, string) error { return nil }

func (b *bystander) Settle(context.Context, version.Version, version.Version) error { return nil }

func (b *bystander) Release(context.Context, string) error { return nil }

func (b *bystander) Ask(_ context.Context, product version.Product, to version.Version) error {
	return nobody(b.of, product, to)
}

func (b *bystander) Withdraw(_ context.Context, product version.Product, to version.Version) error {
	return nobody(b.of, product, to)
}

// Kind is the kind of operator that may act on an object.
type Kind string

const (
	// Plain is an object of Kubernetes itself, such as a ConfigMap: no operator acts on its annotations.
	Plain Kind = "plain"
	// Annotated is any other custom resource: a controller that follows the annotation protocol may act on it.
	Annotated Kind = "annotated"
	// Vitistack is a KubernetesCluster: its operator follows the annotation protocol and keeps a Secret for the
	// object.
	Vitistack Kind = "vitistack"
	// Declarative is a TalosControlPlane: its operator brings the cluster to the spec of the object and cannot be
	// held.
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

// KindOf returns which kind of operator may act on the object.
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

// Complete fills in the API version of a known kind if there is none. It reports false if the API version is
// neither given nor known.
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
