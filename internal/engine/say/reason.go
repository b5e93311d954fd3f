// SPDX-License-Identifier: MPL-2.0

package say

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// WaitError is the error of a wait that ended before its condition held.
type WaitError struct {
	What, Seen string
	After      time.Duration
	Cause      error
}

func (w *WaitError) Error() string {
	text := fmt.Sprintf("waited %s for %s", w.After.Round(time.Second), w.What)
	if errors.Is(w.Cause, context.Canceled) {
		text = "it was interrupted while waiting for " + w.What
	}

	if w.Seen != "" {
		text += "; last seen: " + w.Seen
	}

	return text
}

func (w *WaitError) Unwrap() error { return w.Cause }

// GuardError is the error of guards that did not hold in time.
type GuardError struct {
	Before   string
	Findings []cluster.Finding
	// Slow is true if only slow observations prevented the action.
	Slow bool
	Err  error
}

func (g *GuardError) Error() string { return g.Err.Error() }

func (g *GuardError) Unwrap() []error { return []error{ErrGuard, g.Err} }

// GateError is the error of a gate that did not hold.
type GateError struct {
	Finding cluster.Finding
	After   time.Duration
	Late    bool
}

func (g *GateError) Error() string {
	if !g.Late {
		return g.Finding.Found
	}

	return fmt.Sprintf("%s, for %s now", g.Finding.Found, g.After.Round(time.Second))
}

func (g *GateError) Unwrap() []error { return []error{ErrGate, g.Finding.Err} }

// PullError is the error of an image that a node could not get when its turn came.
type PullError struct {
	Image string
	Err   error
}

func (p *PullError) Error() string { return Unpulled(p.Image, p.Err) }

func (p *PullError) Unwrap() error { return p.Err }

// Unpulled says that an image could not be pulled, and why. It does not say where, so that nodes with the same
// failure can be listed together.
func Unpulled(reference string, err error) string {
	why := err.Error()
	if asked, rest, found := strings.Cut(why, ": "); found && strings.HasPrefix(asked, "unable to pull "+reference+" on ") {
		why = rest
	}

	return fmt.Sprintf("could not pull %s: %s", reference, why)
}

// DrainError is the error of a node that could not be drained in time.
type DrainError struct {
	Timeout string
	Left    map[string]string
	// OfNode is true if the time for the whole upgrade of the node ran out.
	OfNode bool
}

func (d *DrainError) Error() string {
	lines := make([]string, 0, len(d.Left))
	for pod, why := range d.Left {
		lines = append(lines, pod+": "+why)
	}

	slices.Sort(lines)

	if d.OfNode {
		return fmt.Sprintf("node_timeout (%s) was over while these pods were still there: %s", d.Timeout, strings.Join(lines, "; "))
	}

	return fmt.Sprintf("after %s these pods were still there: %s", d.Timeout, strings.Join(lines, "; "))
}

func (d *DrainError) Unwrap() error { return ErrDrain }

// ending reports whether all pods that are left are terminating: no budget keeps them.
func (d *DrainError) ending() bool {
	for _, why := range d.Left {
		if why != ShuttingDown {
			return false
		}
	}

	return len(d.Left) > 0
}

// ShuttingDown is why a terminating pod is still there.
const ShuttingDown = "is shutting down"

// VolumesError is the error of a node with attached volumes that no pod on it uses.
type VolumesError struct {
	After time.Duration
	Left  []cluster.Volume
	// Err is what ended the wait.
	Err error
}

func (v *VolumesError) Error() string {
	if len(v.Left) == 0 {
		return fmt.Sprintf("whether volumes are still attached to the node could not be found out: %v", v.Err)
	}

	return fmt.Sprintf("after %s volumes were still attached to the node that no pod on it uses: %s", v.After, VolumeNames(v.Left))
}

func (v *VolumesError) Unwrap() []error { return []error{ErrDrain, v.Err} }

func (v *VolumesError) remedy() string {
	if len(v.Left) == 0 {
		return "Allow the credentials to list volumeattachments, or set drain.wait_for_volumes = true, which goes on with a warning, then run terraform apply again."
	}

	return "Look at what keeps them (kubectl get volumeattachments, and the log of the driver's controller), then run terraform apply again. drain.wait_for_volumes = true goes on with a warning."
}

// VolumeNames returns the volumes in ascending order, as one text.
func VolumeNames(volumes []cluster.Volume) string {
	names := make([]string, 0, len(volumes))
	for _, volume := range volumes {
		names = append(names, volume.String())
	}

	slices.Sort(names)

	return strings.Join(names, ", ")
}

// UncordonedError is the error of a node that somebody else uncordons while it is being drained.
type UncordonedError struct {
	// By is who wrote to the node last; empty if Kubernetes does not say.
	By string
}

// Who names the last writer of the node, in brackets after a space; empty if it is unknown.
func (u *UncordonedError) Who() string {
	if u.By == "" {
		return ""
	}

	return fmt.Sprintf(" (since this run did, %s has written to its Node object)", u.By)
}

func (u *UncordonedError) Error() string {
	return "somebody uncordoned the node twice while it was being drained" + u.Who() + ", and pods that are evicted would come back"
}

func (u *UncordonedError) Unwrap() error { return ErrUncordoned }

// InstallerError is the error of an installer that ran and failed.
type InstallerError struct {
	Exit   int32
	Output []string
}

func (i *InstallerError) Error() string {
	text := fmt.Sprintf("the installer exited with code %d", i.Exit)
	if len(i.Output) > 0 {
		text += ": " + cluster.Plain(i.Output[len(i.Output)-1])
	}

	return text
}

func (i *InstallerError) Unwrap() error { return ErrInstaller }

// FallbackError is the error of a node that returned to its old system by itself.
type FallbackError struct {
	Image, Previous, BootID string
}

func (f *FallbackError) Error() string {
	return fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself (boot ID %s)", f.Image, f.Previous, f.BootID)
}

func (f *FallbackError) Unwrap() error { return ErrFallback }

// RolledBackError is the error of a node that was sent back to its old system.
type RolledBackError struct {
	// Failed is why; nil if only an earlier run knew.
	Failed                  error
	Image, Previous, BootID string
	// Asked is who asked for it, a clause; empty if the node did not become healthy.
	Asked string
	// Unserved is why it is not in service with its old system.
	Unserved error
}

func (r *RolledBackError) Error() string {
	text := fmt.Sprintf("the node booted %s, did not become healthy with it and was rolled back to Talos %s (boot ID %s)", r.Image, r.Previous, r.BootID)

	switch {
	case r.Asked != "":
		text = fmt.Sprintf("the node was rolled back to Talos %s, %s (boot ID %s)", r.Previous, r.Asked, r.BootID)
	case r.Failed != nil:
		text = fmt.Sprintf("%v\nIt was rolled back to Talos %s (boot ID %s)", r.Failed, r.Previous, r.BootID)
	}

	if r.Unserved != nil {
		text += ", and is not back in service: " + r.Unserved.Error()
	}

	return text
}

func (r *RolledBackError) Unwrap() []error {
	causes := []error{ErrRolledBack}

	for _, because := range []error{r.Failed, r.Unserved} {
		if because != nil {
			causes = append(causes, because)
		}
	}

	return causes
}

// UnhealthyError is the error of a node that runs its new system and is not healthy.
type UnhealthyError struct {
	Version string
	Err     error
}

func (u *UnhealthyError) Error() string {
	return fmt.Sprintf("the node runs Talos %s and did not get back into service with it: %v", u.Version, u.Err)
}

func (u *UnhealthyError) Unwrap() []error { return []error{ErrUnhealthy, u.Err} }

// ExtensionsError is the error of a node whose new system lacks extensions that the old one has.
type ExtensionsError struct {
	Image   string
	Missing []string
}

func (e *ExtensionsError) Error() string {
	what, it := "the extension", "it"
	if len(e.Missing) > 1 {
		what, it = "the extensions", "them"
	}

	return fmt.Sprintf("the node ran %s %s before and came back without: %s does not have %s", what, readable.List(e.Missing), e.Image, it)
}

func (e *ExtensionsError) Unwrap() error { return ErrExtensions }

// SchematicError is the error of a node whose new system has another schematic than the one that its image is
// named after.
type SchematicError struct {
	Image, Installed, Now string
	Talos                 version.Version
}

func (s *SchematicError) Error() string {
	now := "without a schematic"
	if s.Now != "" {
		now = "with schematic " + s.Now
	}

	return fmt.Sprintf("the node came back with Talos %s %s, and %s is named after schematic %s", s.Talos, now, s.Image, s.Installed)
}

func (s *SchematicError) Unwrap() error { return ErrExtensions }

// PlatformError is the error of a node whose new system is built for another platform.
type PlatformError struct {
	Image, Before, Now string
}

func (p *PlatformError) Error() string {
	return fmt.Sprintf("the node ran on platform %s and came back on %s: %s is built for that, so the node does not find what %s provides to its machines, such as its name, its addresses and its disks",
		p.Before, p.Now, p.Image, p.Before)
}

func (p *PlatformError) Unwrap() error { return ErrPlatform }

// RenamedError is the error of a node that came back under another name.
type RenamedError struct {
	Before, Now string
	// Registered is true if there is a Node object with the new name.
	Registered bool
}

func (r *RenamedError) Error() string {
	text := fmt.Sprintf("its machine came back as %s, and Kubernetes will not see %s become Ready any more", r.Now, r.Before)
	if !r.Registered {
		return text
	}

	return text + fmt.Sprintf(". Node %s is not cordoned by this run, so pods may have started there", r.Now)
}

func (r *RenamedError) Unwrap() error { return ErrRenamed }

// ErrOverwritten is the error of a machine configuration that does not keep what was written.
var ErrOverwritten = errors.New("its machine configuration does not keep the new image: something else writes it")

// ErrLeaseFreed is the error of a lease that somebody deleted or freed, probably by hand, and that nobody holds.
var ErrLeaseFreed = fmt.Errorf("%w: somebody deleted or freed kube-system/talosupgrade, and nobody holds it now", ErrLeaseLost)

// ErrStartedAgain is the error of a node that was told to start its old system and did not.
var ErrStartedAgain = errors.New("it was told to start its old system, and did not")
