// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// interrupted words the failure of an upgrade that the end of the context has cut off.
func (u *nodeUpgrade) interrupted(ctx context.Context, failed *say.Failure) {
	failed.Seen = say.Interrupted(ctx, u.activity(failed.Err), failed.Err)

	if u.recorded() || u.cordoned {
		failed.Remedy = say.ContinueRemedy
	}
}

// activity is what was being done to the node: it completes "while".
func (u *nodeUpgrade) activity(err error) string {
	if unpulled := (*say.PullError)(nil); errors.As(err, &unpulled) {
		return u.step.Node + " was pulling " + unpulled.Image
	}

	if u.waits != "" {
		return "waiting until " + u.waits
	}

	switch u.at {
	case cluster.StepGates:
		return "waiting for the gates of " + u.step.Node
	case cluster.StepCordon:
		return u.step.Node + " was being cordoned"
	case cluster.StepDrain:
		return u.step.Node + " was being drained"
	case cluster.StepInstall, cluster.StepLegacy:
		return fmt.Sprintf("Talos %s was being installed on %s", u.step.To, u.step.Node)
	case cluster.StepInstaller:
		return "waiting for the installer on " + u.step.Node + " to end"
	case cluster.StepReboot, cluster.StepReturn:
		return u.step.Node + " was rebooting"
	case cluster.StepRollback:
		return u.step.Node + " was being sent back to its old system"
	case cluster.StepEtcd:
		return "waiting for etcd to be healthy with " + u.step.Node
	case cluster.StepReady:
		return "waiting for " + u.step.Node + " to be Ready in Kubernetes"
	case cluster.StepUncordon:
		return u.step.Node + " was being uncordoned"
	case cluster.StepInstallImage:
		return "the machine configuration of " + u.step.Node + " was being made to name the image that it runs"
	default:
		return "waiting for " + u.step.Node + " to say what it runs"
	}
}

// interrupted words the failure of a component's upgrade that the end of the context has
// cut off.
func (c *componentUpgrade) interrupted(ctx context.Context, failed *say.Failure) {
	failed.Seen = say.Interrupted(ctx, c.activity(failed.Err), failed.Err)

	if c.configured {
		failed.Remedy = say.ContinueRemedy
	}
}

// activity is what was being done to the component: it completes "while".
func (c *componentUpgrade) activity(err error) string {
	if unpulled := (*say.PullError)(nil); errors.As(err, &unpulled) {
		return c.step.Node + " was pulling " + unpulled.Image
	}

	switch c.at {
	case cluster.StepConfigure:
		return fmt.Sprintf("%s was being configured to run %s %s", c.step.Node, c.step.Component, c.step.To)
	case cluster.StepRestart:
		return fmt.Sprintf("waiting for %s on %s to run %s", c.step.Component, c.step.Node, c.step.To)
	default:
		return fmt.Sprintf("waiting until %s on %s could be replaced", c.step.Component, c.step.Node)
	}
}
