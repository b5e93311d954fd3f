// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// installation is one run of an installer.
type installation struct {
	image   string
	content system
	by      string // client or legacy

	lines []string      // guarded by World.mu
	more  chan struct{} // closed at each new line
	exit  int
	done  bool
}

// Install runs the installer of an image that was pulled before, which writes the slot that the bootloader would
// not start and makes it the next one. It changes nothing that runs. output, which may be nil, receives what the
// installer prints. A non-zero exit code is no error.
//
// Once started, the installer runs to its end even if the caller goes away. A second call meanwhile returns
// ErrInstallInProgress.
func (w *World) Install(ctx context.Context, name, image string, output func(string)) (exit int, err error) {
	return w.InstallFrom(ctx, name, image, NamespaceSystem, output)
}

// InstallFrom is [World.Install] from one of the two stores that hold installers.
func (w *World) InstallFrom(ctx context.Context, name, image string, from ImageNamespace, output func(string)) (exit int, err error) {
	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return 0, err
	}

	current := begin(ctx, n)
	defer current.end()

	run, err := w.prepare(n, image, from)
	if err != nil {
		w.mu.Unlock()

		return 0, err
	}

	fault, struck := w.takeFault(n.name, StepInstall)

	if struck && fault.Effect == EffectNotStarted {
		n.installing = false
		w.touch(n)
		w.mu.Unlock()

		return 0, fmt.Errorf("%w: %s", ErrInstallNotStarted, fault.text("no space left on device"))
	}

	w.spawn(n.life, func(life context.Context) { w.runInstaller(life, n, run, fault) })

	if struck && fault.Effect == EffectConnectionLostEarly {
		w.mu.Unlock()

		return 0, ErrConnectionLost
	}
	w.mu.Unlock()

	if !w.followInstaller(current.ctx, run, output) || current.broken() {
		return 0, current.err(ctx)
	}

	if struck && fault.Effect == EffectConnectionLost {
		return 0, ErrConnectionLost
	}

	return run.exit, nil
}

// prepare checks what the call needs, and locks the machine's installer.
func (w *World) prepare(n *node, image string, from ImageNamespace) (*installation, error) {
	store := n.installers(from)

	switch {
	case n.installing:
		return nil, ErrInstallInProgress
	case image == "":
		return nil, ErrImageRequired
	case store == nil:
		return nil, fmt.Errorf("namespace %q: %w", from, ErrUnsupported)
	}

	content, there := store.find(image, w.clock.Now())

	switch {
	case !there:
		return nil, fmt.Errorf("installer image %q %w", image, ErrImageMissing)
	case from == NamespaceSystem && n.damaged[content.digest]:
		return nil, ErrImageDamaged
	}

	n.installing = true
	w.touch(n)

	return &installation{image: image, content: content, by: "client", more: make(chan struct{})}, nil
}

// followInstaller passes on what the installer prints. It returns false if the caller's connection broke before the
// end.
func (w *World) followInstaller(ctx context.Context, run *installation, output func(string)) bool {
	told := 0

	for {
		w.mu.Lock()
		lines, done, more := run.lines[told:], run.done, run.more
		told = len(run.lines)
		w.mu.Unlock()

		for _, line := range lines {
			if output != nil {
				output(line)
			}
		}

		if done {
			return true
		}

		select {
		case <-more:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *installation) print(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	close(r.more)
	r.more = make(chan struct{})
}

// runInstaller runs the installer's container. It holds the machine's installer lock, and ends with the machine.
func (w *World) runInstaller(life context.Context, n *node, run *installation, fault Fault) {
	w.mu.Lock()
	total := w.spread(n, "install", 10*time.Second, 30*time.Second)
	host := n.running().talos

	run.print("running Talos installer v%s", run.content.talos)
	w.mu.Unlock()

	exit, text := preflight(run.content.talos, host)
	if exit == 0 && fault.Effect == EffectRefuse {
		exit, text = refusalCode(run.content.talos), fault.text("pre-flight checks failed: error getting Talos version: context deadline exceeded")
	}

	if exit == 0 && run.content.broken != "" {
		exit, text = failureCode(run.content.talos), run.content.broken
	}

	if exit != 0 {
		_ = w.clock.Sleep(life, total/8)
		w.finishInstall(life, n, run, exit, text, false)

		return
	}

	if fault.Effect == EffectPowerLost {
		if w.clock.Sleep(life, total/2) == nil {
			w.losePower(n)
		}

		w.finishInstall(life, n, run, 0, "", false)

		return
	}

	w.perform(life, []step{
		{total / 4, func() { run.print("host version v%s is supported", host) }},
		{total / 2, func() { run.print("writing boot assets to slot %s", slotName(1-n.next)) }},
		{total, func() {}},
	})

	text = "installation of v" + run.content.talos + " complete"

	switch fault.Effect {
	case EffectNotStarted:
		// The legacy API reports only that its sequence failed.
		exit, text = 1, fault.text("failed to create container")
	case EffectFail, EffectFailArmed:
		exit = failureCode(run.content.talos)
		text = fault.text("error running installer: failed to write boot assets: input/output error")
	default:
	}

	w.finishInstall(life, n, run, exit, text, exit == 0 || fault.Effect == EffectFailArmed)

	if fault.Effect == EffectUnreachable {
		w.locked(func() { w.fallSilent(n, fault, replyTime) })
	}
}

// preflight checks the host as the installer does. It returns the exit code, and what the installer prints if it
// refuses.
func preflight(talos, host string) (int, string) {
	installer, err := parseVersion(talos)
	if err != nil {
		return 1, err.Error()
	}

	current, err := parseVersion(host)
	if err != nil {
		return 1, err.Error()
	}

	if err := checkHost(installer, current); err != nil {
		return refusalCode(talos), "pre-flight checks failed: " + err.Error()
	}

	return 0, ""
}

// refusalCode returns the exit code of an installer that refuses a host.
func refusalCode(talos string) int {
	const environment = 4

	if AtLeast(talos, 1, 14) {
		return environment
	}

	return 1
}

// failureCode returns the exit code of an installer that could not write; before Talos 1.14 all failures had the
// same.
func failureCode(talos string) int {
	const install = 7

	if AtLeast(talos, 1, 14) {
		return install
	}

	return 1
}

// finishInstall switches the bootloader if the installer came that far, releases the lock and records the outcome.
func (w *World) finishInstall(life context.Context, n *node, run *installation, exit int, text string, armed bool) {
	const killed = 137

	w.locked(func() {
		target := 1 - n.next

		if life.Err() != nil {
			exit, armed, text = killed, false, "the machine went down"
		}

		if armed {
			w.writeSlot(n, target, run.content)
		}

		w.record(n.name, history.KindInstall, map[string]string{
			"image": run.image, "talos": run.content.talos, "schematic": run.content.schematic,
			"slot": slotName(target), "exit": strconv.Itoa(exit), "by": run.by,
		})

		run.exit, run.done = exit, true

		if text != "" {
			run.print("%s", text)
		} else {
			close(run.more)
		}

		if life.Err() == nil {
			n.installing = false
		}

		w.touch(n)
	})
}

// losePower ends a machine in the middle of an install, and starts it again at once.
func (w *World) losePower(n *node) {
	w.locked(func() {
		for _, digest := range n.images.unflushed(w.clock.Now()) {
			n.damaged[digest] = true
		}

		w.takeDown(n, "power", false)
	})

	w.spawn(w.life, func(life context.Context) {
		if w.clock.Sleep(life, firmwareTime) == nil {
			w.boot(w.life, n, causeReboot)
		}
	})
}

// takesPlatform reports whether the machine takes its platform from what an installer of that version writes.
func (n *node) takesPlatform(talos string) bool {
	return n.secure || AtLeast(talos, 1, 10) && (n.uki || n.configured.ukiArguments(talos))
}

// writeSlot writes a system into the slot that the bootloader does not name, and makes it name that one. The META
// tag keeps which one was named before: without a reboot in between, that is a system that never ran.
func (w *World) writeSlot(n *node, target int, content system) {
	// A bootloader with kernel arguments of its own keeps those of the machine.
	if !n.takesPlatform(content.talos) {
		content.platform = n.platform()
	}

	n.tag, n.tagged = n.next, n.entry(n.next)
	n.entries[target], n.selected = n.nextEntry(content), false
	n.slots[target] = content
	n.next, n.armed, n.reverted = target, true, false
	n.installs++
}

// entry returns what the bootloader calls a slot: GRUB its label, sd-boot the name of its file. On a machine that
// was written from an image, sd-boot has chosen the entry itself and reports it in lower case until something else
// chooses one (seen on Talos 1.13.9, 2026-11-26).
func (n *node) entry(slot int) string {
	switch {
	case !n.uki:
		return slotName(slot)
	case n.selected:
		return strings.ToLower(n.entries[slot])
	default:
		return n.entries[slot]
	}
}

// nextEntry returns the name of the file that is written for a system: with a number if there is one of its version
// already (Talos 1.13.9, bootloader/sdboot: generateNextUKIName).
func (n *node) nextEntry(content system) string {
	base := "Talos-" + cmp.Or(content.tag, "v"+content.talos)
	last := -1

	for _, existing := range n.entries {
		name, number, numbered := strings.Cut(strings.TrimSuffix(existing, ".efi"), "~")
		if name != base {
			continue
		}

		taken := 0
		if numbered {
			taken, _ = strconv.Atoi(number)
		}

		last = max(last, taken)
	}

	if last < 0 {
		return base + ".efi"
	}

	return fmt.Sprintf("%s~%d.efi", base, last+1)
}
