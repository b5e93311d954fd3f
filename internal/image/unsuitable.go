// SPDX-License-Identifier: MPL-2.0

package image

import "errors"

var (
	// ErrUnsuitable is wrapped by errors about an image with which a node would lose something.
	ErrUnsuitable = errors.New("unsuitable installer image")
	// ErrSchematic is wrapped by those of them with which the node would lose its extensions.
	ErrSchematic = errors.New("another schematic")
	// ErrBoot is wrapped by those of them whose boot mode differs from the node's.
	ErrBoot = errors.New("another way to boot")
	// ErrPlatform is wrapped by those of them that are built for another platform.
	ErrPlatform = errors.New("another platform")
)

// UnsuitableError is the error of an image with which a node would lose something.
type UnsuitableError struct {
	// Kind is ErrSchematic, ErrBoot or ErrPlatform.
	Kind error
	// Found is a phrase that says what is wrong with the image.
	Found string
	// Remedy is a phrase that says what to do about it.
	Remedy string
}

func (u *UnsuitableError) Error() string {
	return ErrUnsuitable.Error() + ": " + u.Found + "; " + u.Remedy
}

func (u *UnsuitableError) Unwrap() []error { return []error{ErrUnsuitable, u.Kind} }

// Leniency is what a node may lose by an image, as accepted by the user. The zero value accepts nothing. An image
// for another platform is never accepted.
type Leniency struct {
	// AnySchematic accepts an image without the node's extensions.
	AnySchematic bool
	// AnyBoot accepts an image with another boot mode.
	AnyBoot bool
}

// Accepts reports whether the error is about a loss that is accepted.
func (l Leniency) Accepts(err error) bool {
	return (l.AnySchematic && errors.Is(err, ErrSchematic)) ||
		(l.AnyBoot && errors.Is(err, ErrBoot))
}
