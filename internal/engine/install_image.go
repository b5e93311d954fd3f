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
func (t *turn) syncInstallImage() error {
	ctx := t.whole
	confirmed := t.open && t.entry.Image != "" && t.runs.Equal(t.entry.Target)
	if !t.run.request.Policy.SyncInstallImage || !confirmed {
		return nil
	}

	t.doing(cluster.StepInstallImage, t.entry.Image)

	bounded, cancel := t.run.engine.clock.WithTimeout(ctx, installImagePatience)
	defer cancel()

	err := t.run.engine.wait(bounded, t.step.Node, "the installer image of "+t.step.Node+" to be configured", func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := t.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		return t.nameInstallImage(ctx)
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrLeaseLost) {
		return err
	}

	t.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: fmt.Sprintf(
		"the node runs %s, and its machine configuration could not be made to name it: %v", t.entry.Image, err)})

	return nil
}

// nameInstallImage changes the configuration once, unless it names the image
// already or has no place for it.
func (t *turn) nameInstallImage(ctx context.Context) (bool, string, error) {
	machine, err := t.run.engine.talos.Machine(ctx, t.step.Address)

	switch {
	case err != nil:
		return false, err.Error(), onlyFatal(err)
	case machine.Config == nil:
		return false, "", errors.New("it cannot be read with these credentials")
	case !machine.Config.Installs, machine.Config.InstallImage == "", machine.Config.InstallImage == t.entry.Image:
		// One that names no image means Talos' own choice, which is kept.
		return true, "", nil
	}

	err = t.run.engine.talos.Configure(ctx, t.step.Address, cluster.ImageChange{
		Component: cluster.Installer, From: machine.Config.InstallImage, To: t.entry.Image,
	})
	if err != nil {
		// Whoever wrote it in the meantime is looked at with the next try.
		return false, err.Error(), onlyFatal(err)
	}

	return true, "", nil
}
