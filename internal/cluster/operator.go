// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// OperatorProduct is what the object of an operator says of one product.
type OperatorProduct struct {
	// Target is what the operator is asked for, without "v"; empty where it is
	// asked for nothing. Where it is no version it is as somebody wrote it.
	Target string
	Status protocol.Status
	// Message and Progress are its own words; empty where it says nothing.
	Message, Progress string
	// Current is what it takes the cluster to run, without "v"; empty where it
	// does not say.
	Current string
	// Undo is how a person takes the target back, a sentence; empty where that is
	// not possible.
	Undo string
}

// RunPrefix is what the IDs of runs begin with, so that a hold that one of them
// left behind is known for what it is.
const RunPrefix = "talosupgrade-"

// IsRun tells whether a hold is that of a run of ours.
func IsRun(hold string) bool { return strings.HasPrefix(hold, RunPrefix) }

// OperatorReport is what the object of an operator says.
type OperatorReport struct {
	// Deleting tells that the object is on its way out.
	Deleting bool
	// Passive tells that nothing acts on objects of that kind.
	Passive bool
	// Hold is what keeps the operator from acting: the ID of a run of ours (see
	// [IsRun]), or what somebody else wrote; empty where nothing does.
	Hold string
	// Unhold is how a person ends the hold, a sentence.
	Unhold string
	// Updated is the last sign of life of a run of ours; zero where there is none.
	Updated           time.Time
	Talos, Kubernetes OperatorProduct
	// FailedNodes are the nodes at which it failed, by its own account.
	FailedNodes []string
}

// Of is what the report says of a product.
func (r OperatorReport) Of(product version.Product) OperatorProduct {
	if product == version.Kubernetes {
		return r.Kubernetes
	}

	return r.Talos
}

// Operator is a controller that may upgrade the same cluster because of what an
// object says. Errors wrap the sentinels of this package; ErrNotFound means that
// there is no such object, or no such kind.
type Operator interface {
	// String names the object, such as "KubernetesCluster tenant-a/prod".
	String() string
	// Report reads the object.
	Report(ctx context.Context) (OperatorReport, error)
	// Hold keeps the operator from acting in the name of the run, in place of the
	// given hold, which is empty for none. ErrConflict means that another one
	// stands by now; ErrUnsupported that the operator cannot be held. Without
	// effect where nothing acts on objects of that kind.
	Hold(ctx context.Context, run, instead string) error
	// Settle brings what the operator remembers beside the object up to date with
	// what the cluster runs, so that it does not undo an upgrade. A zero version is
	// not known, and left as it is. It is called while the operator is held.
	Settle(ctx context.Context, talos, kubernetes version.Version) error
	// Release ends the hold of the run and no other one; none is no error.
	Release(ctx context.Context, run string) error
	// Ask asks the operator to bring a product to the version.
	Ask(ctx context.Context, product version.Product, to version.Version) error
	// Withdraw takes back what the operator was asked for, if it is still the
	// version. ErrUnsupported means that it cannot be taken back, as where the
	// object only says what is to run.
	Withdraw(ctx context.Context, product version.Product, to version.Version) error
}

// Announcer is an observer that can have something to say of a cluster in which
// nothing is to be done.
type Announcer interface {
	// Announces tells whether others would see something new if it were told of
	// the event. It writes nothing.
	Announces(ctx context.Context, event Event) bool
}
