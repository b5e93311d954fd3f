// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// details is what a machine says about the way in which it took a
// configuration.
func details(n *node, next *application) string {
	switch {
	case next.dryRun && bytes.Equal(n.config, next.text):
		return "Dry run summary:\nNo changes."
	case next.dryRun:
		return fmt.Sprintf("Dry run summary:\nApplied configuration without a reboot (skipped in dry-run).\nChanged: %s.",
			strings.Join(n.changes(n.configured, next.config), ", "))
	case next.reply.Mode == ApplyStaged:
		return "Staged configuration to be applied after the next reboot"
	case next.reply.Mode == ApplyReboot:
		return "Applied configuration with a reboot"
	default:
		return "Applied configuration without a reboot"
	}
}

func invalidApply(format string, args ...any) error {
	return &labelled{label: ErrApplyInvalid, text: fmt.Errorf(format, args...).Error()}
}

// applyCode is the gRPC code that a refusal has on the wire.
func applyCode(err error) string {
	switch {
	case err == nil:
		return "OK"
	case errors.Is(err, ErrApplyInvalid):
		return "InvalidArgument"
	case errors.Is(err, ErrApplyBusy):
		return "FailedPrecondition"
	case errors.Is(err, ErrApplyModeUnsupported):
		return "Unimplemented"
	default:
		return "Unknown"
	}
}
