// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The calls as the history names them.
const (
	methodForfeit    = "/machine.MachineService/EtcdForfeitLeadership"
	methodPull       = "/machine.ImageService/Pull"
	methodLegacyPull = "/machine.MachineService/ImagePull"
	methodImages     = "/machine.ImageService/List"
	methodInstall    = "/machine.LifecycleService/Upgrade"
	methodUpgrade    = "/machine.MachineService/Upgrade"
	methodReboot     = "/machine.MachineService/Reboot"
	methodRollback   = "/machine.MachineService/Rollback"
)

// route returns an error unless a call gets through to a node: some control plane has to take it and pass it on.
func (c *Client) route() error {
	if c.cluster.world.Routing() {
		return nil
	}

	var planes []model.NodeState

	for _, state := range c.cluster.world.Nodes() {
		if state.Role == model.ControlPlane {
			planes = append(planes, state)
		}
	}

	// If there is only one endpoint, the error says more about it.
	if len(planes) == 1 && planes[0].Maintenance {
		return fmt.Errorf("%w: %w: the endpoint is in maintenance mode", cluster.ErrUnreachable, cluster.ErrForeign)
	}

	return fmt.Errorf("%w: no endpoint answers", cluster.ErrUnreachable)
}

// How long the adapter waits for a silent machine: for the answer to a read, and for the connection of a change.
const (
	silentRead = 10 * time.Second
	silentDial = 20 * time.Second
)

// hear makes the caller of a silent machine wait.
func (c *Client) hear(ctx context.Context, limit time.Duration, err error) error {
	if errors.Is(err, model.ErrUnreachable) && !errors.Is(err, model.ErrUnconfigured) && c.cluster.world.Silent() {
		_ = c.cluster.world.Clock().Sleep(ctx, limit)
	}

	return err
}

// ask makes a read of a machine.
func (c *Client) ask(ctx context.Context, what string, do func(context.Context) error) error {
	if err := c.route(); err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	return translate(ctx, what, false, c.hear(ctx, silentRead, do(ctx)))
}

// order makes a call that changes a machine, if its version has the call. The call is in the history only if it
// reached the machine.
func (c *Client) order(ctx context.Context, address, what, method string, do func(context.Context) error) error {
	if err := c.route(); err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	// The machine may be gone when the call has ended.
	node := c.cluster.nameOf(address)

	err := c.checkVersion(address, method)
	if err == nil {
		err = c.hear(ctx, silentDial, do(ctx))
	}

	if !errors.Is(err, model.ErrUnreachable) && !errors.Is(err, model.ErrUnknownNode) {
		c.cluster.record(node, history.KindRPC, map[string]string{
			"method": method, "role": "os:admin", "code": code(ctx, err), "mutating": "true", "client": c.name,
		})
	}

	return translate(ctx, what, true, err)
}

func (c *Client) checkVersion(address, method string) error {
	state, err := c.cluster.world.Node(address)
	if err != nil || !state.Reachable {
		// A machine that does not answer cannot refuse either.
		return nil //nolint:nilerr // the call itself finds out
	}

	if slices.Contains([]string{methodPull, methodImages, methodInstall}, method) && !model.AtLeast(state.Talos, 1, 13) {
		return fmt.Errorf("unknown method %s: %w", method, model.ErrUnsupported)
	}

	return nil
}

// ClusterID implements [cluster.Talos].
func (c *Client) ClusterID(ctx context.Context) (id string, err error) {
	err = c.read(ctx, "ClusterID", "", func(context.Context) error {
		if err := c.route(); err != nil {
			return err
		}

		id = c.cluster.world.ClusterID()

		return nil
	})

	return id, err
}

// Roles implements [cluster.Talos].
func (c *Client) Roles() []string { return slices.Clone(c.roles) }

// Members implements [cluster.Talos].
func (c *Client) Members(ctx context.Context) (members []cluster.Member, err error) {
	err = c.read(ctx, "Members", "", func(context.Context) error {
		if err := c.route(); err != nil {
			return err
		}

		for _, state := range c.cluster.world.Members() {
			members = append(members, cluster.Member{
				Hostname: state.Name, Role: cluster.Role(state.Role), Addresses: state.Addresses,
			})
		}

		return nil
	})

	return members, err
}

// Machine implements [cluster.Talos].
func (c *Client) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (machine cluster.Machine, err error) {
	began := c.cluster.world.Now()

	err = c.read(ctx, "Machine", address, func(ctx context.Context) error {
		return c.ask(ctx, "observe "+address, func(ctx context.Context) error {
			state, err := c.cluster.world.MachineStatus(ctx, address)
			if err == nil {
				machine, err = c.machine(state)
			}

			return err
		})
	})
	if err != nil {
		return machine, err
	}

	c.mu.Lock()
	fill := c.fill
	c.mu.Unlock()

	if machine = fill(known, machine); extent == cluster.BootOnly {
		machine = bootOnly(known, machine)
	}

	c.cluster.record(c.cluster.nameOf(address), history.KindTold, Told(c.name, began, machine))

	return machine, nil
}

// Told returns the details of an observation of a machine that has ended.
func Told(client string, began time.Duration, machine cluster.Machine) map[string]string {
	talos := ""
	if !machine.Talos.IsZero() {
		talos = machine.Talos.String()
	}

	told := map[string]string{
		"client": client, "boot_id": machine.BootID, "talos": talos, "began": strconv.FormatFloat(began.Seconds(), 'f', -1, 64),
	}
	if !machine.Partial {
		told["schematic"], told["platform"] = machine.Schematic, machine.Platform
	}

	return told
}

// bootOnly returns what an observation of [cluster.BootOnly] is told of a machine: in the known boot what is known and
// the status, in another one its version, its boot and its status.
func bootOnly(known *cluster.Machine, now cluster.Machine) cluster.Machine {
	if known != nil && known.StatusSince.Equal(now.StatusSince) {
		machine := *known
		machine.Stage, machine.Ready, machine.Unmet = now.Stage, now.Ready, now.Unmet

		return machine
	}

	return cluster.Machine{
		Address: now.Address, Talos: now.Talos, TalosTag: now.TalosTag, BootID: now.BootID,
		StatusSince: now.StatusSince, Stage: now.Stage, Ready: now.Ready, Unmet: now.Unmet, Partial: true,
	}
}

// fill adds what is known about a machine to an observation, if both are of the same boot and it was asked for
// everything.
func fill(known *cluster.Machine, now cluster.Machine) cluster.Machine {
	if known == nil || known.Partial || !known.StatusSince.Equal(now.StatusSince) {
		return now
	}

	return again(*known, now)
}

// again returns a machine for which only what changes within a boot was read.
func again(known, now cluster.Machine) cluster.Machine {
	known.Stage, known.Ready, known.Unmet = now.Stage, now.Ready, now.Unmet
	if known.UpgradePending {
		known.UpgradePending, known.UpgradeTag = now.UpgradePending, now.UpgradeTag
	}

	if known.FilesVersion == "" {
		known.PodsSince, known.FilesVersion = now.PodsSince, now.FilesVersion
	}

	if known.Config == nil {
		known.Config = now.Config
	}

	return known
}

// Etcd implements [cluster.Talos].
func (c *Client) Etcd(ctx context.Context, address string, members bool) (view cluster.EtcdView, err error) {
	err = c.read(ctx, "Etcd", address, func(ctx context.Context) error {
		return c.ask(ctx, "ask etcd on "+address, func(ctx context.Context) error {
			view, err = c.etcd(ctx, address, members)

			return err
		})
	})

	return view, err
}

// ForfeitLeadership implements [cluster.Talos].
func (c *Client) ForfeitLeadership(ctx context.Context, address string) error {
	return c.change(ctx, "ForfeitLeadership", address, func(ctx context.Context) error {
		return c.order(ctx, address, "move etcd leadership away from "+address, methodForfeit, func(ctx context.Context) error {
			_, err := c.cluster.world.ForfeitLeadership(ctx, address)

			return err
		})
	})
}

// Pull implements [cluster.Talos].
func (c *Client) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	method := methodPull
	if api == cluster.LegacyAPI {
		method = methodLegacyPull
	}

	return c.change(ctx, "Pull", address, func(ctx context.Context) error {
		return c.order(ctx, address, "pull "+image+" on "+address, method, func(ctx context.Context) error {
			_, err := c.cluster.world.Pull(ctx, address, image, nil)

			return err
		})
	})
}

// PullToInstall implements [cluster.Talos]. For interceptors it is a Pull.
func (c *Client) PullToInstall(ctx context.Context, address, image string) error {
	return c.change(ctx, "Pull", address, func(ctx context.Context) error {
		return c.order(ctx, address, "pull "+image+" on "+address, methodPull, func(ctx context.Context) error {
			_, err := c.cluster.world.PullInto(ctx, address, image, model.NamespaceOwn, nil)

			return err
		})
	})
}

// ImageDigest implements [cluster.Talos].
func (c *Client) ImageDigest(ctx context.Context, address, image string) (digest string, err error) {
	what := "find " + image + " on " + address

	err = c.read(ctx, "ImageDigest", address, func(ctx context.Context) error {
		return c.ask(ctx, what, func(ctx context.Context) error {
			if err := c.checkVersion(address, methodImages); err != nil {
				return err
			}

			list, err := c.cluster.world.Images(ctx, address, model.NamespaceOwn)
			if err != nil {
				return err
			}

			at := slices.IndexFunc(list, func(found model.Image) bool { return found.Name == image })
			if at < 0 {
				return cluster.ErrNotFound
			}

			digest = list[at].Digest

			return nil
		})
	})

	return digest, err
}

// outputMost is how many lines of an installer's output are kept.
const outputMost = 20

// Install implements [cluster.Talos].
func (c *Client) Install(ctx context.Context, address, image string) (done cluster.Installation, err error) {
	err = c.change(ctx, "Install", address, func(ctx context.Context) error {
		return c.order(ctx, address, "install "+image+" on "+address, methodInstall, func(ctx context.Context) error {
			exit, err := c.cluster.world.InstallFrom(ctx, address, image, model.NamespaceOwn, func(line string) {
				done.Output = append(done.Output, line)
				done.Output = done.Output[max(0, len(done.Output)-outputMost):]
			})
			done.Exit = int32(exit) //nolint:gosec // an exit code

			return err
		})
	})

	return done, err
}

// InstallerIdle implements [cluster.Talos]: an upgrade call without an image is refused either because an installer
// runs or because of the image.
func (c *Client) InstallerIdle(ctx context.Context, address string) (idle bool, err error) {
	err = c.read(ctx, "InstallerIdle", address, func(ctx context.Context) error {
		err := c.order(ctx, address, "ask whether an installer runs on "+address, methodInstall, func(ctx context.Context) error {
			_, err := c.cluster.world.InstallFrom(ctx, address, "", model.NamespaceOwn, nil)

			return err
		})

		idle = errors.Is(err, cluster.ErrRefused)
		if idle || errors.Is(err, cluster.ErrBusy) {
			return nil
		}

		return err
	})

	return idle, err
}

// Reboot implements [cluster.Talos].
func (c *Client) Reboot(ctx context.Context, address string, mode cluster.RebootMode) error {
	return c.change(ctx, "Reboot", address, func(ctx context.Context) error {
		return c.order(ctx, address, "reboot "+address, methodReboot, func(ctx context.Context) error {
			_, err := c.cluster.world.Reboot(ctx, address, model.RebootMode(mode))

			return err
		})
	})
}

// Rollback implements [cluster.Talos].
func (c *Client) Rollback(ctx context.Context, address string) error {
	return c.change(ctx, "Rollback", address, func(ctx context.Context) error {
		return c.order(ctx, address, "roll back "+address, methodRollback, func(ctx context.Context) error {
			return c.cluster.world.Rollback(ctx, address)
		})
	})
}

// Logs implements [cluster.Talos].
func (c *Client) Logs(ctx context.Context, address, service string, lines int) (text []string, err error) {
	what := "read the log of " + service + " on " + address

	err = c.read(ctx, "Logs", address, func(ctx context.Context) error {
		return c.ask(ctx, what, func(ctx context.Context) error {
			text, err = c.cluster.world.Logs(ctx, address, service, max(0, lines))
			if errors.Is(err, model.ErrNoLog) {
				return fmt.Errorf("%w: %w", cluster.ErrNotFound, err)
			}

			return err
		})
	})

	return text, err
}

// machine returns what the adapter makes of everything that it reads from a machine.
func (c *Client) machine(state model.NodeState) (cluster.Machine, error) {
	tag := ""

	talos, err := version.Parse(state.TalosTag)
	if err != nil {
		tag = state.TalosTag
	}

	machine := cluster.Machine{
		Address: state.Address, NodeName: state.Name, MachineID: state.MachineID, UUID: state.UUID, Role: cluster.Role(state.Role),
		Talos: talos, TalosTag: tag, Schematic: state.Schematic, Extensions: state.Extensions, Platform: state.Platform,
		SecureBoot: state.SecureBoot && !state.SecurityUnknown, BootUnknown: state.SecurityUnknown,
		BootedWithUKI: state.BootedWithUKI && !state.SecurityUnknown,
		BootID:        state.BootID, StatusSince: state.BootedAt, Stage: cluster.Stage(state.Stage), Ready: state.Ready,
		// The running system does not see what an installer has just written.
		UpgradePending: state.UpgradePending && !state.Armed,
	}

	if machine.UpgradePending {
		machine.UpgradeTag = state.UpgradeTag
	}

	for _, unmet := range state.Unmet {
		machine.Unmet = append(machine.Unmet, unmet.Name+": "+unmet.Reason)
	}

	if state.Role == model.ControlPlane {
		machine.PodsSince, machine.FilesVersion = state.BootedAt, strconv.Itoa(state.StaticPods[model.APIServerName].FilesVersion)
	}

	if c.admin() {
		machine.Config, err = c.cluster.summaries.of(state.Config)
		if err != nil {
			return cluster.Machine{}, err
		}
	}

	return machine, nil
}

func (c *Client) admin() bool {
	for _, role := range c.roles {
		if role == "os:admin" {
			return true
		}
	}

	return false
}

// etcd returns etcd as one control plane sees it. For a learner that is its status: it answers nothing else.
func (c *Client) etcd(ctx context.Context, address string, listed bool) (cluster.EtcdView, error) {
	status, err := c.cluster.world.EtcdStatus(ctx, address)
	if err != nil {
		return cluster.EtcdView{}, err
	}

	var (
		members   []model.EtcdMember
		noMembers error
	)

	if listed {
		members, noMembers = c.cluster.world.EtcdMembers(ctx, address)
	}

	if err := noMembers; err != nil && (!status.Learner || ctx.Err() != nil) {
		return cluster.EtcdView{}, err
	}

	view := cluster.EtcdView{Status: cluster.EtcdStatus{
		MemberID: status.Member, Leader: status.Leader, Term: status.Term, Index: status.Index, Applied: status.Applied,
		Learner: status.Learner, Errors: status.Errors, DBSize: status.DBSize, Version: status.Version,
	}}

	for _, member := range members {
		view.Members = append(view.Members, cluster.EtcdMember{
			ID: member.ID, Name: member.Name, Learner: member.Learner, PeerAddresses: []string{member.Address},
		})
	}

	return view, nil
}

const methodSnapshot = "/machine.MachineService/EtcdSnapshot"

// Vitals implements [cluster.Talos].
func (c *Client) Vitals(ctx context.Context, address string) (vitals cluster.Vitals, err error) {
	err = c.read(ctx, "Vitals", address, func(ctx context.Context) error {
		return c.ask(ctx, "ask "+address+" about its disk and its clock", func(ctx context.Context) (err error) {
			vitals, err = c.vitals(ctx, address)

			return err
		})
	})
	if err != nil {
		return cluster.Vitals{}, err
	}

	return vitals, nil
}

// vitals returns those of a machine that may be slow to report its disk: as in the adapter, its clock is returned
// all the same.
func (c *Client) vitals(ctx context.Context, address string) (vitals cluster.Vitals, err error) {
	bounded, stop := context.WithCancelCause(ctx)

	var watching sync.WaitGroup

	watching.Go(func() {
		if c.cluster.world.Clock().Sleep(bounded, mountsLimit) == nil {
			stop(errSlow)
		}
	})

	told, err := c.cluster.world.Vitals(bounded, address)
	slow := err != nil && errors.Is(context.Cause(bounded), errSlow)

	stop(nil)
	watching.Wait()

	disk := told.Disk
	if told.Containerd != nil {
		disk = told.Containerd
	}

	what := "unable to read the mounts of " + address

	switch {
	case slow:
		vitals.DiskError = fmt.Errorf("%s: %w", what, errSlow)
	case err != nil:
		return cluster.Vitals{}, err
	case disk == nil:
		vitals.DiskError = fmt.Errorf("%s: input/output error", what)
	default:
		vitals.Disk = &cluster.DiskSpace{Size: disk.Size, Available: disk.Available}
	}

	if told.Time != nil {
		vitals.Time = &cluster.TimeSync{Synced: told.Time.Synced, Disabled: told.Time.Disabled}
	}

	return vitals, nil
}

// mountsLimit is how long the answer about mounts may take.
const mountsLimit = 3 * time.Second

var errSlow = fmt.Errorf("%w: no answer within %s", cluster.ErrUnreachable, mountsLimit)

// EtcdSnapshot implements [cluster.Talos]. The history has it like any other call: with the code OK, the stream was
// read to its end.
func (c *Client) EtcdSnapshot(ctx context.Context, address string, to io.Writer) error {
	what := "take a snapshot of etcd on " + address

	return c.read(ctx, "EtcdSnapshot", address, func(ctx context.Context) error {
		if !c.hasRole("os:admin", "os:operator", "os:etcd:backup") {
			return fmt.Errorf("unable to %s: %w: not authorized", what, cluster.ErrDenied)
		}

		return c.ask(ctx, what, func(ctx context.Context) error { return c.snapshot(ctx, address, to) })
	})
}

func (c *Client) snapshot(ctx context.Context, address string, to io.Writer) error {
	watched, stop := context.WithCancelCause(ctx)
	progress := &progress{to: to, now: c.cluster.world.Clock().Now, last: c.cluster.world.Clock().Now()}

	var watching sync.WaitGroup

	watching.Go(func() { progress.watch(watched, c.cluster.world.Clock(), stop) })

	err := c.cluster.world.EtcdSnapshot(watched, address, progress)
	ended := code(watched, err)

	if stalled := context.Cause(watched); err != nil && errors.Is(stalled, errStalled) {
		err = stalled
	}

	stop(nil)
	watching.Wait()

	if !errors.Is(err, model.ErrUnreachable) && !errors.Is(err, model.ErrUnknownNode) {
		c.cluster.record(c.cluster.nameOf(address), history.KindRPC, map[string]string{
			"method": methodSnapshot, "role": c.roles[0], "code": ended, "mutating": "false", "client": c.name,
		})
	}

	return err
}

// stallLimit is how long a stream may pause.
const stallLimit = time.Minute

var errStalled = fmt.Errorf("%w: nothing came for %s", cluster.ErrUnreachable, stallLimit)

// progress is a writer that knows when it was last written to.
type progress struct {
	to  io.Writer
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

func (p *progress) Write(chunk []byte) (int, error) {
	p.mu.Lock()
	p.last = p.now()
	p.mu.Unlock()

	return p.to.Write(chunk)
}

// watch ends a stream that pauses for too long.
func (p *progress) watch(ctx context.Context, clock model.Clock, stop context.CancelCauseFunc) {
	for {
		p.mu.Lock()
		left := stallLimit - p.now().Sub(p.last)
		p.mu.Unlock()

		if left <= 0 {
			stop(errStalled)

			return
		}

		if clock.Sleep(ctx, left) != nil {
			return
		}
	}
}

func (c *Client) hasRole(roles ...string) bool {
	return slices.ContainsFunc(c.roles, func(role string) bool { return slices.Contains(roles, role) })
}

// Upgrade implements [cluster.Talos].
func (c *Client) Upgrade(
	ctx context.Context, address, image string, mode cluster.RebootMode, accept func(),
) (result cluster.Installation, err error) {
	what := "upgrade " + address + " to " + image

	err = c.change(ctx, "Upgrade", address, func(ctx context.Context) error {
		var actor string

		accepted := c.order(ctx, address, what, methodUpgrade, func(ctx context.Context) error {
			var err error

			actor, err = c.cluster.world.LegacyUpgrade(ctx, address, model.LegacyOptions{Image: image, Mode: model.RebootMode(mode)})

			return err
		})
		if accepted != nil {
			return accepted
		}

		if accept != nil {
			accept()
		}

		var followed error
		if result, followed = c.follow(ctx, address, actor); followed != nil {
			return fmt.Errorf("unable to %s: %w: its events broke off: %w", what, cluster.ErrOutcomeUnknown, cluster.Worded(followed))
		}

		return nil
	})

	return result, err
}

// errFollowed ends the events of an upgrade whose installer has ended.
var errFollowed = errors.New("the installer has ended")

// follow reads the machine's events until those of the actor show how the installer ended.
func (c *Client) follow(ctx context.Context, address, actor string) (cluster.Installation, error) {
	var (
		result     cluster.Installation
		installing bool
	)

	err := c.cluster.world.Follow(ctx, address, model.Tail{Count: -1}, func(event model.Event) error {
		switch {
		case event.Actor != actor:
			return nil
		case event.Kind == model.EventSequence && event.Error != "":
			result = cluster.Installation{Exit: 1, Output: []string{event.Error}}

			return errFollowed
		case event.Kind != model.EventPhase:
			return nil
		case installing:
			return errFollowed
		}

		installing = event.Name == "upgrade"

		return nil
	})
	if errors.Is(err, errFollowed) {
		return result, nil
	}

	return cluster.Installation{}, err
}
