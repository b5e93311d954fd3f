// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// OperatorProduct is what the object of an operator says about one product.
type OperatorProduct struct {
	// Target is the version that the operator is asked for, without "v", or the text as it was written if it is
	// not a version; empty if the operator is asked for nothing.
	Target string
	Status protocol.Status
	// Message and Progress are the operator's own words; empty if it says nothing.
	Message, Progress string
	// Current is the version that the operator says the cluster runs, without "v"; empty if it does not say.
	Current string
	// Undo says how a person takes the target back, a sentence; empty if that is not possible.
	Undo string
}

// RunPrefix begins the IDs of runs, so that a hold that a run left behind can be recognised.
const RunPrefix = "talosupgrade-"

// IsRun reports whether a hold is that of a run of ours.
func IsRun(hold string) bool { return strings.HasPrefix(hold, RunPrefix) }

// OperatorReport is what the object of an operator says.
type OperatorReport struct {
	// Deleting is true if the object is being deleted.
	Deleting bool
	// Passive is true if nothing acts on objects of that kind.
	Passive bool
	// Hold is what keeps the operator from acting: the ID of a run of ours (see [IsRun]), or what somebody else
	// wrote; empty if it is not held.
	Hold string
	// Unhold is how a person ends the hold, a sentence.
	Unhold string
	// Updated is the last sign of life of a run of ours; zero if there is none.
	Updated           time.Time
	Talos, Kubernetes OperatorProduct
	// FailedNodes are the nodes at which the operator says it failed.
	FailedNodes []string
}

// Of returns what the report says about a product.
func (r OperatorReport) Of(product version.Product) OperatorProduct {
	if product == version.Kubernetes {
		return r.Kubernetes
	}

	return r.Talos
}

// Operator is a controller that may upgrade the same cluster because an object asks for it. Errors wrap the
// sentinels of this package; ErrNotFound means that there is no such object, or no such kind.
type Operator interface {
	// String names the object, such as "KubernetesCluster tenant-a/prod".
	String() string
	// Report reads the object.
	Report(ctx context.Context) (OperatorReport, error)
	// Hold keeps the operator from acting in the name of the run, in place of the given hold, which is empty for
	// none. ErrConflict means that there is another hold by now; ErrUnsupported means that the operator cannot be
	// held. It has no effect if nothing acts on objects of that kind.
	Hold(ctx context.Context, run, instead string) error
	// Settle brings what the operator keeps outside the object up to date with what the cluster runs, so that it
	// does not undo an upgrade. A zero version is unknown and changes nothing. It is called while the operator is
	// held.
	Settle(ctx context.Context, talos, kubernetes version.Version) error
	// Release ends the hold of the run and no other hold; it is no error if there is none.
	Release(ctx context.Context, run string) error
	// Ask asks the operator to bring a product to the version.
	Ask(ctx context.Context, product version.Product, to version.Version) error
	// Withdraw takes back what the operator was asked for, if that is still the version. ErrUnsupported means
	// that it cannot be taken back, as with an object that only says what is to run.
	Withdraw(ctx context.Context, product version.Product, to version.Version) error
}

// Announcer is an observer that may have something to announce although the cluster needs no upgrade.
type Announcer interface {
	// Announces reports whether observing the event would publish anything new. It writes nothing.
	Announces(ctx context.Context, event Event) bool
}
