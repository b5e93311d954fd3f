// SPDX-License-Identifier: MPL-2.0

package fact

import "time"

// Dated is the answer to a question. It may be older than a step by the beginning of the question, and is as
// old as its end: a machine that takes long to answer says how it is at the end.
type Dated[T any] struct {
	Value T
	// Err is why there is no answer.
	Err error
	// Asked is when the question began, and Got when it ended; zero where nobody has asked.
	Asked Moment
	Got   time.Time
}

// Moment is a point in time, and in the order of what upgrades do: two of them may have the same time.
type Moment struct {
	At    time.Time
	Steps Steps
}

// Steps counts what upgrades did to nodes: all that they did, and what they did to control
// planes, which concerns everybody.
type Steps struct{ All, Grave int }

// Need is how recent an answer has to be.
type Need struct {
	// Now is when that is asked. A step to a control plane between the question and now makes an answer
	// useless.
	Now Moment
	// Age is less than how long ago the answer came; nothing will do where it is 0.
	Age time.Duration
	// After is what the question began after.
	After time.Time
}

// fits tells whether there is an answer, and it is recent enough.
func (d Dated[T]) fits(need Need) bool {
	return d.Err == nil && !d.Got.IsZero() && need.Now.At.Sub(d.Got) < need.Age && d.Asked.At.After(need.After) && d.Asked.Steps.Grave == need.Now.Steps.Grave
}
