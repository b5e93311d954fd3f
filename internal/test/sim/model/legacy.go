// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// LegacyOptions are the options of MachineService.Upgrade.
type LegacyOptions struct {
	Image    string
	Preserve bool
	Stage    bool
	Force    bool
	Mode     RebootMode
}

const (
	drainTimeout   = 5 * time.Minute
	lockTime       = 310 * time.Millisecond
	failureReboot  = 10037 * time.Millisecond
	uncordonPause  = 5037 * time.Millisecond
	uncordonBudget = 30 * time.Minute
)

// LegacyUpgrade pulls the image and checks etcd while the caller waits, then
// acknowledges with the actor of the sequence, and drains, installs and
// reboots in the background. Staged upgrades are not played.
func (w *World) LegacyUpgrade(ctx context.Context, name string, options LegacyOptions) (actor string, err error) {
	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return "", err
	}

	current := begin(ctx, n)
	defer current.end()

	fault, struck := w.takeFault(n.name, StepLegacyUpgrade)
	w.mu.Unlock()

	switch {
	case options.Stage:
		return "", &labelled{ErrUnsupported, "staged upgrades are not simulated"}
	case struck && fault.Effect == EffectFail:
		return "", &labelled{errInternal, fault.text("failed to start the upgrade sequence")}
	}

	content, err := w.validate(current.ctx, n, options.Image)
	if err == nil {
		err = w.checkEtcd(current.ctx, n, options)
	}

	if current.broken() {
		return "", current.err(ctx)
	}

	if err != nil {
		return "", err
	}

	w.locked(func() { actor = w.startUpgrade(n, content, options) })

	if struck && fault.Effect == EffectConnectionLost {
		return "", ErrConnectionLost
	}

	return actor, nil
}

// validate pulls the image and checks it.
func (w *World) validate(ctx context.Context, n *node, image string) (system, error) {
	if image == "" {
		return system{}, refuse("error validating installer image \"\": image reference is empty")
	}

	content, err := w.pullInto(ctx, n, n.ownImages, image, nil)

	switch {
	case err == nil:
		return content, nil
	case errors.Is(err, ErrConnectionLost), ctx.Err() != nil:
		return system{}, err
	case notFound(err):
		return system{}, fmt.Errorf("error validating installer image %q: failed to pull image %q: %w", image, image, err)
	default:
		return system{}, refuse("error validating installer image %q: %s", image, err)
	}
}

// checkEtcd is the validation that only the legacy API does. It happens under a lock of the whole cluster, which is
// released as soon as the call returns.
func (w *World) checkEtcd(ctx context.Context, n *node, options LegacyOptions) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	skip := options.Force || options.Preserve && AtLeast(n.running().talos, 1, 13)
	if n.etcd == nil || skip {
		return nil
	}

	switch {
	case !n.etcd.running || !w.quorum():
		return refuseLate("failed to create etcd client: error building etcd client")
	case w.etcd.lock:
		return refuse("failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: mutex: Locked by another session")
	}

	w.etcd.lock = true
	w.mu.Unlock()

	slept := w.clock.Sleep(ctx, lockTime)

	w.mu.Lock()
	w.etcd.lock = false

	if slept != nil {
		return slept
	}

	return w.validateMembers()
}

func (w *World) validateMembers() error {
	members := w.members()

	if len(members) == 2 {
		return refuse("error validating etcd for upgrade: etcd member count(%d) is insufficient to maintain quorum if upgrade commences",
			len(members))
	}

	for _, other := range members {
		if !other.etcd.healthy() || other.suffers(StepEtcd, EffectSilent) || other.suffers(StepEtcd, EffectNoLeader) {
			return refuseLate("error validating etcd for upgrade: etcd member %s is not healthy; "+
				"all members must be healthy to perform an upgrade", memberID(other.etcd.id))
		}
	}

	return nil
}

func (w *World) startUpgrade(n *node, content system, options LegacyOptions) string {
	actor := w.newActor(n)

	if !w.takeOver(n, "upgrade", actor) {
		return actor
	}

	n.stage = StageUpgrading
	n.reboots++
	w.touch(n)

	w.spawn(n.life, func(life context.Context) {
		if err := w.upgradeSequence(life, n, content); err != nil {
			w.failSequence(life, n, err)
		}

		// If the machine lost its power meanwhile, losePower starts it.
		if life.Err() != nil {
			return
		}

		w.goDown(n, n.asker(), true)

		if options.Mode == RebootPowercycle && w.clock.Sleep(w.life, firmwareTime) != nil {
			return
		}

		w.boot(w.life, n, causeReboot)
	})

	return actor
}

// upgradeSequence runs until the machine is about to go down.
func (w *World) upgradeSequence(life context.Context, n *node, content system) error {
	w.mu.Lock()
	face := w.kubernetes
	w.mu.Unlock()

	if err := face.Cordon(life, n.name, true); err != nil {
		return fmt.Errorf("error running phase 1 in upgrade sequence: failed to cordon node: %w", err)
	}

	w.locked(func() { n.cordoned = true; w.phase(n, "drain") })

	// Pods that cannot be evicted in time go down with the machine.
	_ = face.Drain(life, n.name, drainTimeout)

	if !w.perform(life, w.stopForUpgrade(n)) {
		return nil
	}

	run := &installation{image: content.image, content: content, by: "legacy", more: make(chan struct{})}
	fault, _ := w.TakeFault(n.name, StepInstall)

	w.locked(func() {
		if n.byHand {
			run.by = n.asker()
		}

		n.installing = true
		w.phase(n, "upgrade")
		w.touch(n)
	})
	w.runInstaller(life, n, run, fault)

	if run.exit != 0 {
		return fmt.Errorf("error running phase 9 in upgrade sequence: task exited with exit code %d", run.exit)
	}

	w.perform(life, []step{
		{0, func() { n.stage = StageRebooting; w.phase(n, "kexec"); w.touch(n) }},
		{1237 * time.Millisecond, func() { w.phase(n, "stopEverything"); w.task(n, "stopAllServices") }},
		{3711 * time.Millisecond, func() {}},
	})

	return nil
}

func (w *World) stopForUpgrade(n *node) []step {
	w.mu.Lock()
	defer w.mu.Unlock()

	pods := w.spread(n, "stop pods", 1*time.Second, 4*time.Second)
	services := pods + w.spread(n, "stop services", 2*time.Second, 5*time.Second)

	return []step{
		{pods, func() {
			w.phase(n, "cleanup")
			n.stopKubernetes()
			w.touch(n)
		}},
		{services, func() {
			w.phase(n, "stopServices")
			w.etcdStop(n, true)
			w.touch(n)
		}},
	}
}

// failSequence does what machined does if a sequence fails: it reports the failure, reverts the bootloader if an
// upgrade is pending, and counts down.
func (w *World) failSequence(life context.Context, n *node, cause error) {
	w.locked(func() {
		n.stage = StageRebooting
		n.publish(w, Event{Kind: EventSequence, Name: "upgrade", Action: ActionNone, Error: "sequence failed: " + cause.Error()})

		if n.tag >= 0 {
			n.next, n.tag, n.armed, n.reverted, n.selected = 1-n.next, -1, false, false, false
		}

		w.touch(n)
	})

	_ = w.clock.Sleep(life, failureReboot)
}

func (w *World) phase(n *node, name string) {
	n.publish(w, Event{Kind: EventPhase, Name: name, Action: ActionStart})
}

func (w *World) task(n *node, name string) {
	n.publish(w, Event{Kind: EventTask, Name: name, Action: ActionStart})
}

// liftCordon lifts the cordon that the machine itself set before a legacy upgrade, as soon as the Kubernetes API
// accepts that.
func (w *World) liftCordon(life context.Context, n *node) {
	w.mu.Lock()
	wanted, face := n.cordoned, w.kubernetes
	w.mu.Unlock()

	if !wanted {
		return
	}

	for waited := time.Duration(0); waited < uncordonBudget; waited += uncordonPause {
		if face.Cordon(life, n.name, false) == nil {
			w.locked(func() { n.cordoned = false })

			return
		}

		if w.clock.Sleep(life, uncordonPause) != nil {
			return
		}
	}
}

// UpgradeByHand plays a person who upgrades a machine, found by name or address, with the legacy call of talosctl:
// the image is there at once, and etcd is not checked, as with its flag force. The machine cordons and drains its
// node, installs and reboots; faults of the installer and of the boot strike it as well.
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
