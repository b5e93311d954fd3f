// SPDX-License-Identifier: MPL-2.0

package cluster

import "strings"

// Severity is how much a finding matters.
type Severity int

const (
	// Advice is worth knowing and prevents nothing.
	Advice Severity = iota
	// Observed prevents an apply but not a plan: waiting or a person may cure it before the apply runs.
	Observed
	// Permanent prevents a plan as well: waiting does not help.
	Permanent
)

// Within is one step into the value of an attribute: [Key], [Index] or [Field].
type Within interface{ within() }

// Key is a key of a map.
type Key string

// Index is an index of a list, from 0.
type Index int

// Field is an attribute of an object.
type Field string

func (Key) within()   {}
func (Index) within() {}
func (Field) within() {}

// Finding is one reason why an upgrade cannot or should not go on.
type Finding struct {
	// Check is the name of the check, such as "etcd-quorum".
	Check    string
	Severity Severity
	// Node is empty if the finding concerns the whole cluster.
	Node string
	// Attribute is the attribute of the configuration at fault, if any.
	Attribute string
	// Within leads from the attribute to the value at fault, if that is not the attribute as a whole.
	Within []Within
	// Found is what was seen, a sentence without a full stop.
	Found string
	// Remedy is what a person can do about it, a sentence.
	Remedy string
	// Err is the error of a port behind the finding, if any.
	Err error
	// Unknown is true if the check could not be made, which counts as failed.
	Unknown bool
	// Cause is the name of the check that found the underlying problem; empty if the finding stands for itself.
	Cause string
	// Passing is true if the finding may soon pass by itself: an apply waits a little before it refuses.
	Passing bool
	// Firm is true if the policy cannot skip the finding, although it can skip the check.
	Firm bool
	// Skipped is true if the policy turned the finding into advice.
	Skipped bool
}

// String returns the finding as one paragraph.
func (f Finding) String() string {
	var text strings.Builder

	if f.Node != "" {
		text.WriteString(f.Node)
		text.WriteString(": ")
	}

	text.WriteString(f.Found)
	text.WriteString(" (check ")
	text.WriteString(f.Check)

	if f.Skipped {
		text.WriteString(", skipped")
	}

	text.WriteString(").")

	if f.Remedy != "" {
		text.WriteString(" ")
		text.WriteString(f.Remedy)
	}

	return text.String()
}

// Blocking returns the findings that prevent an apply.
func Blocking(findings []Finding) []Finding {
	var blocking []Finding

	for _, finding := range findings {
		if finding.Severity != Advice {
			blocking = append(blocking, finding)
		}
	}

	return blocking
}
