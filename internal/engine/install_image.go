// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// installImagePatience bounds the change of a machine configuration after an
// upgrade that is done. It is worth some patience and no failure.
const installImagePatience = 2 * time.Minute

// syncInstallImage has the machine configuration name the image that the node was
// upgraded with, so that it is not installed with an older one some day. The
// upgrade is confirmed by then; what keeps this from being done is a warning, and
// so is a node whose time is used up.
func (u *nodeUpgrade) syncInstallImage() error {
	ctx := u.untimed
	confirmed := u.pending && u.entry.Image != "" && u.runs.Equal(u.entry.Target)
	if !u.run.request.Policy.SyncInstallImage || !confirmed {
		return nil
	}

	u.emitStep(cluster.StepInstallImage, u.entry.Image)

	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, installImagePatience)
	defer cancel()

	err := u.run.engine.wait(bounded, u.step.Node, "the installer image of "+u.step.Node+" to be configured", func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := u.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		return u.nameInstallImage(ctx)
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrLeaseLost) {
		return err
	}

	u.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
		"the node runs %s, and its machine configuration could not be made to name it: %v", u.entry.Image, err)})

	return nil
}

// nameInstallImage changes the configuration once, unless it names the image
// already or has no place for it.
func (u *nodeUpgrade) nameInstallImage(ctx context.Context) (bool, string, error) {
	machine, err := u.run.engine.talos.Machine(ctx, u.step.Address)

	switch {
	case err != nil:
		return false, err.Error(), permanentOnly(err)
	case machine.Config == nil:
		return false, "", errors.New("it cannot be read with these credentials")
	case !machine.Config.Installs, machine.Config.InstallImage == "", machine.Config.InstallImage == u.entry.Image:
		// One that names no image means Talos' own choice, which is kept.
		return true, "", nil
	}

	err = u.run.engine.talos.Configure(ctx, u.step.Address, cluster.ImageChange{
		Component: cluster.Installer, From: machine.Config.InstallImage, To: u.entry.Image,
	})
	if err != nil {
		// Whoever wrote it in the meantime is looked at with the next try.
		return false, err.Error(), permanentOnly(err)
	}

	return true, "", nil
}
