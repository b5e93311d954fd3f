// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/client"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The IDs of machine configurations: the one in effect, and the one that the
// next boot takes, which older versions do not show.
const (
	activeConfig     = "v1alpha1"
	persistentConfig = "persistent"
)

// storedConfig is a machine configuration as a node has it. It holds secrets.
type storedConfig struct {
	text []byte
	// version counts the writes since the node booted.
	version string
}

// lookAttempts is how often a change is begun anew because somebody else wrote.
const lookAttempts = 3

// Configure has the machine configuration name another image for a component.
// It is one request at most, and none when the image is named already. Talos
// takes whatever configuration comes last, so that the versions before and
// after have to tell whether somebody else wrote at the same moment; who wrote
// before that costs another look, [lookAttempts] in all. Errors wrap
// cluster.ErrNotFound where the configuration has no install section to name an
// installer in, and cluster.ErrConflict where another image is named than expected, where the
// configuration does not hold still or would be undone by a boot, and where
// somebody else may have been overwritten. They quote no more of the
// configuration than images.
func (c *Client) Configure(ctx context.Context, address string, change cluster.ImageChange) error {
	what := fmt.Sprintf("change the image of %s in the machine configuration of %s", change.Component, place(address))

	before, edited, err := c.prepareChange(ctx, address, change)
	if err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	if edited == nil {
		return nil
	}

	if err := c.applyConfig(ctx, operation{what: what, node: address, timeout: applyTimeout, mutates: true}, edited); err != nil {
		return err
	}

	after, err := c.storedConfig(ctx, address, activeConfig)
	if err != nil {
		return fmt.Errorf("unable to %s: %w: the node accepted, and then could not be asked: %w", what, cluster.ErrOutcomeUnknown, err)
	}

	if err := compareConfigs(before, after, edited); err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	return nil
}

// prepareChange reads and edits the configuration until it holds still; the
// edited one is nil when nothing has to be changed.
func (c *Client) prepareChange(
	ctx context.Context, address string, change cluster.ImageChange,
) (before storedConfig, edited []byte, err error) {
	for range lookAttempts {
		before, err = c.storedConfig(ctx, address, activeConfig)
		if err != nil {
			return storedConfig{}, nil, err
		}

		edited, err = editImage(before.text, change)
		if err != nil || edited == nil {
			return before, nil, err
		}

		// A write that is under way shows for a moment as one that is not settled.
		err = c.assertUntouched(ctx, address, before)
		if !errors.Is(err, cluster.ErrConflict) {
			break
		}
	}

	return before, edited, err
}

func (c *Client) storedConfig(ctx context.Context, address, id string) (storedConfig, error) {
	var spec configpb.MachineConfigSpec

	metadata, err := c.read(ctx, address, kindMachineConfig(), id, &spec)
	if err != nil {
		return storedConfig{}, err
	}

	return storedConfig{text: spec.GetYamlMarshalled(), version: metadata.GetVersion()}, nil
}

// assertUntouched makes sure, right before a write, that nothing would be lost
// by it: neither a change made since the configuration was read, nor one that
// waits for the next boot, nor one that is only being tried.
func (c *Client) assertUntouched(ctx context.Context, address string, read storedConfig) error {
	persistent, missing := c.storedConfig(ctx, address, persistentConfig)
	if missing != nil && !isAbsent(missing) {
		return missing
	}

	now, err := c.storedConfig(ctx, address, activeConfig)

	switch {
	case err != nil:
		return err
	case now.version != read.version || !bytes.Equal(now.text, read.text):
		return fmt.Errorf("%w: it changed while it was being edited, and was left alone", cluster.ErrConflict)
	case missing != nil:
		return c.assertNotTried(ctx, address, now)
	default:
		return assertSettled(persistent, now)
	}
}

// assertNotTried makes sure that a boot would bring back the configuration in
// effect, of a node that shows none stored for it. From Talos 1.10 on that
// means that none was stored since the last boot: what was written since then
// is only being tried.
func (c *Client) assertNotTried(ctx context.Context, address string, active storedConfig) error {
	if writes, known := count(active.version); !known || writes <= 1 {
		return nil
	}

	machine := cluster.Machine{Address: address}
	if err := c.readVersion(ctx, &machine); err != nil {
		return err
	}

	if machine.TalosTag == "" && !machine.Talos.AtLeast(1, 10) {
		return nil
	}

	return fmt.Errorf("%w: the configuration in effect was changed since the node booted and is not stored for its next boot, "+
		"because it was only tried: apply the configuration you want, or reboot the node", cluster.ErrConflict)
}

// assertSettled makes sure that the configuration of the next boot is the one
// in effect. They need not be equal byte for byte.
func assertSettled(persistent, active storedConfig) error {
	if sameMeaning(persistent.text, active.text) {
		return nil
	}

	return fmt.Errorf("%w: the configuration stored for the next boot is not the one in effect, "+
		"because one was staged or is being tried; a change now would undo that", cluster.ErrConflict)
}

// applyConfig replaces the configuration, never with a reboot. The mode's zero
// value would be one.
func (c *Client) applyConfig(ctx context.Context, op operation, text []byte) error {
	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		_, err := api.MachineClient.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: text, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})

		return withoutConfig(err)
	})
}

// compareConfigs looks for another writer after a write of ours.
func compareConfigs(before, after storedConfig, ours []byte) error {
	const advice = "a change made there may have been overwritten: compare the machine configuration with its source"

	// A node may write anew what it took; that loses no meaning.
	if !sameMeaning(after.text, ours) {
		return fmt.Errorf("%w: the configuration is not the one that was applied; %s", cluster.ErrConflict, advice)
	}

	from, known := count(before.version)
	to, stillKnown := count(after.version)

	switch {
	case !known, !stillKnown, to == from+1:
		return nil
	case to <= from:
		return fmt.Errorf("%w: the node restarted in the meantime", cluster.ErrConflict)
	default:
		return fmt.Errorf("%w: it was written %d times and not once; %s", cluster.ErrConflict, to-from, advice)
	}
}

// count is the number in the version of a resource; false when it has none.
func count(version string) (uint64, bool) {
	number, err := strconv.ParseUint(version, 10, 64)

	return number, err == nil
}
