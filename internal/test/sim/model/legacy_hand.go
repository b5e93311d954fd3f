// SPDX-License-Identifier: MPL-2.0

package model

// UpgradeByHand is a person who upgrades a machine, found by name or address, with
// the legacy call of talosctl: the image is there at once, and nothing asks etcd,
// as with its flag force. The machine cordons and drains its node, installs and
// reboots; faults of the installer and of the boot are for it as well.
func (w *World) UpgradeByHand(name, image string) error {
	var err error

	w.locked(func() {
		var (
			n       *node
			content system
		)

		if content, err = w.registry.resolve(image); err != nil {
			return
		}

		if n, err = w.reach(name); err != nil {
			return
		}

		if n.sequence != "" && n.sequence != "boot" {
			err = refuse("sequence not started: locked")

			return
		}

		n.ownImages.put(content, w.clock.Now())
		n.byHand = true
		w.startUpgrade(n, content, LegacyOptions{Image: image, Force: true})
	})

	return err
}
