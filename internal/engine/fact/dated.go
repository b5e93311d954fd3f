// SPDX-License-Identifier: MPL-2.0

package fact

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Dated is the answer to a question, with the times of both. An answer precedes a step if its question began
// before it. The age counts from the answer, because a machine is asked last for what changes from one moment to
// the next.
type Dated[T any] struct {
	Value T
	// Err is why there is no value.
	Err error
	// Asked is when the question began, and Got when it was answered; zero if it was never asked.
	Asked Moment
	Got   time.Time
}

// Moment is a time with the number of steps taken by then, because the time alone does not order them.
type Moment struct {
	At    time.Time
	Steps Steps
}

// Steps counts what upgrades did to nodes: All counts all steps, Grave those on nodes other than workers, which
// invalidate the observations of every upgrade.
type Steps struct{ All, Grave int }

// Need is how recent an answer has to be.
type Need struct {
	// Now is when the answer is needed. If a control plane was changed between the question and now, no answer
	// fits.
	Now Moment
	// Age is how old the answer may be; 0 accepts none.
	Age time.Duration
	// After is the time after which the question must have begun.
	After time.Time
}

// fits reports whether there is an answer, and it is recent enough.
func (d Dated[T]) fits(need Need) bool {
	return need.Age > 0 && d.Err == nil && !d.Got.IsZero() && cluster.Elapsed(d.Got, need.Now.At) < need.Age && d.Asked.At.After(need.After) && d.Asked.Steps.Grave == need.Now.Steps.Grave
}
