// SPDX-License-Identifier: MPL-2.0

package image

import "errors"

var (
	// ErrUnsuitable is wrapped by errors about an image that would take something
	// away from the node it is meant for.
	ErrUnsuitable = errors.New("unsuitable installer image")
	// ErrSchematic is wrapped by those of them that would cost the node its
	// extensions.
	ErrSchematic = errors.New("another schematic")
	// ErrBoot is wrapped by those of them that do not boot the way the node does.
	ErrBoot = errors.New("another way to boot")
	// ErrPlatform is wrapped by those of them that are built for another platform.
	ErrPlatform = errors.New("another platform")
)

// UnsuitableError is an image that would take something away from a node.
type UnsuitableError struct {
	// Kind is ErrSchematic, ErrBoot or ErrPlatform.
	Kind error
	// Found is what is wrong with it, a phrase.
	Found string
	// Remedy is what to do about it, a phrase.
	Remedy string
}

func (u *UnsuitableError) Error() string {
	return ErrUnsuitable.Error() + ": " + u.Found + "; " + u.Remedy
}

func (u *UnsuitableError) Unwrap() []error { return []error{ErrUnsuitable, u.Kind} }

// Leniency is what an image may cost a node, because the user said so. The zero
// value is nothing. An image for another platform is never accepted.
type Leniency struct {
	// AnySchematic accepts an image that does not hold the node's extensions.
	AnySchematic bool
	// AnyBoot accepts an image that boots in another way.
	AnyBoot bool
}

// Accepts tells whether the error is about something that the image may cost.
func (l Leniency) Accepts(err error) bool {
	return (l.AnySchematic && errors.Is(err, ErrSchematic)) ||
		(l.AnyBoot && errors.Is(err, ErrBoot))
}
