// SPDX-License-Identifier: MPL-2.0

package fact

import "time"

// Dated is the answer to a question. It precedes a step if its question did, and its age counts from its
// end: what changes from one moment to the next is what a machine is asked for last.
type Dated[T any] struct {
	Value T
	// Err is why there is no answer.
	Err error
	// Asked is when the question began, and Got when it was answered; zero where nobody has asked.
	Asked Moment
	Got   time.Time
}

// Moment is a time, and the number of steps that were taken by then: the time alone does not order them.
type Moment struct {
	At    time.Time
	Steps Steps
}

// Steps counts what upgrades did to nodes: all that they did, and what they did to control
// planes, which concerns everybody.
type Steps struct{ All, Grave int }

// Need is how recent an answer has to be.
type Need struct {
	// Now is when that is asked. If a control plane was changed between the question and now, no answer
	// will do.
	Now Moment
	// Age is how long ago the answer may have come; 0 accepts none.
	Age time.Duration
	// After is what the question has to have begun after.
	After time.Time
}

// fits tells whether there is an answer, and it is recent enough.
func (d Dated[T]) fits(need Need) bool {
	return need.Age > 0 && d.Err == nil && !d.Got.IsZero() && need.Now.At.Sub(d.Got) < need.Age && d.Asked.At.After(need.After) && d.Asked.Steps.Grave == need.Now.Steps.Grave
}
