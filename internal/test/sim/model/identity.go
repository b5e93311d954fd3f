// SPDX-License-Identifier: MPL-2.0

package model

import "strconv"

// SetUUID changes what the firmware of a machine, found by name or address, tells
// as the UUID of the hardware. Cheap boards share one, and some have zeros alone.
func (w *World) SetUUID(nameOrAddress, uuid string) (err error) {
	w.locked(func() {
		var n *node

		if n, err = w.find(nameOrAddress); err == nil {
			n.uuid = uuid
			w.touch(n)
		}
	})

	return err
}

// WipeStateByHand is a person who resets the STATE partition of a machine and
// gives it its configuration again: the machine reboots into the system that it
// has, with the name that it had, and has another identity.
func (w *World) WipeStateByHand(nameOrAddress string) error {
	if err := w.RebootByHand(nameOrAddress, RebootDefault); err != nil {
		return err
	}

	return w.identify(nameOrAddress, func(n *node) (identity, machineID string) {
		return drawIdentity(w.options.Seed, "identity", n.name, n.bootID, strconv.Itoa(n.boots))
	})
}

// CloneState gives a machine the identity of another one, as the copy of a disk
// does.
func (w *World) CloneState(from, to string) error {
	original, err := w.Node(from)
	if err != nil {
		return err
	}

	return w.identify(to, func(*node) (identity, machineID string) { return original.Identity, original.MachineID })
}

func (w *World) identify(nameOrAddress string, as func(*node) (identity, machineID string)) (err error) {
	w.locked(func() {
		var n *node

		if n, err = w.find(nameOrAddress); err == nil {
			n.identity, n.machineID = as(n)
			w.touch(n)
		}
	})

	return err
}
