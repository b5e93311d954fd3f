// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Access is how the objects of an operator are reached.
type Access interface {
	cluster.ObjectAccess
	cluster.SecretAccess
}

// New is the operator that may act on the object; which one follows from
// [KindOf]. It asks nobody.
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

// bystander is an object that nobody acts on.
type bystander struct {
	of     cluster.Reference
	access Access
}

func (b *bystander) String() string { return b.of.String() }

// Report says what is annotated. Whoever held it or asked it for something did so
// without effect.
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

func (b *bystander) Ask(_ context.Context, half cluster.Half, to version.Version) error {
	return nobody(b.of, half, to)
}

func (b *bystander) Withdraw(_ context.Context, half cluster.Half, to version.Version) error {
	return nobody(b.of, half, to)
}

func nobody(of cluster.Reference, half cluster.Half, to version.Version) error {
	return fmt.Errorf("unable to have an operator run %s %s by way of %s: %w: none is known to act on it; name a %s or a %s",
		half.Name(), to, of, cluster.ErrUnsupported, vitistackKind, declarativeKind)
}
