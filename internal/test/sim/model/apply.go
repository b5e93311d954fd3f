// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// application is a machine configuration that is being applied.
type application struct {
	text   []byte
	mode   ApplyMode
	dryRun bool
	by     string // client, fault or other

	config *configuration
	fault  Fault // zero for none
	reply  ApplyReply
	err    error
	ended  chan struct{}
}

// ApplyConfig replaces the configuration of a machine, found by name or address, as its version of Talos does. It
// takes most of a second, and once begun it runs to its end even if the caller goes away. The error is
// [ErrApplyInvalid], [ErrApplyBusy] or [ErrApplyModeUnsupported] if the machine does not accept the configuration.
func (w *World) ApplyConfig(ctx context.Context, name string, config []byte, mode ApplyMode, dryRun bool) (ApplyReply, error) {
	return w.apply(ctx, name, &application{text: bytes.Clone(config), mode: mode, dryRun: dryRun, by: "client"})
}

// SetConfigByHand plays a person who edits the configuration of a machine, found by name or address, with talosctl:
// in mode no-reboot, and without the faults of the script. edit is given the present text.
func (w *World) SetConfigByHand(node string, edit func(old string) (string, error)) error {
	text, err := w.MachineConfig(node)
	if err != nil {
		return err
	}

	edited, err := edit(string(text))
	if err != nil {
		return err
	}

	_, err = w.apply(context.Background(), node, &application{text: []byte(edited), mode: ApplyNoReboot, by: "other"})

	return err
}

func (w *World) apply(ctx context.Context, name string, next *application) (ApplyReply, error) {
	if err := ctx.Err(); err != nil {
		return ApplyReply{}, err
	}

	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return ApplyReply{}, err
	}

	current := begin(ctx, n)
	defer current.end()

	if err := w.checkApply(n, next); err != nil {
		w.recordApply(n, next, n.configured, err)
		w.mu.Unlock()

		return ApplyReply{}, err
	}

	const least, most = 500 * time.Millisecond, 900 * time.Millisecond

	n.applying = n.applying || !next.dryRun
	next.ended = make(chan struct{})
	length := w.spread(n, "apply", least, most)

	w.spawn(n.life, func(life context.Context) {
		defer close(next.ended)

		if w.clock.Sleep(life, length) != nil {
			next.err = ErrConnectionLost

			return
		}

		w.locked(func() { w.finishApply(life, n, next) })
	})
	w.mu.Unlock()

	select {
	case <-next.ended:
	case <-current.ctx.Done():
		return ApplyReply{}, current.err(ctx)
	case <-w.life.Done():
		return ApplyReply{}, errStopped
	}

	switch {
	case current.link.Err() != nil:
		return ApplyReply{}, ErrConnectionLost
	case next.err == nil && next.fault.Effect == EffectConnectionLost:
		return ApplyReply{}, ErrConnectionLost
	default:
		return next.reply, next.err
	}
}

// checkApply checks a configuration before the machine begins to apply it. The lock is held.
func (w *World) checkApply(n *node, next *application) error {
	talos := n.running().talos

	switch next.mode {
	case ApplyReboot, ApplyAuto, ApplyNoReboot, ApplyStaged, ApplyTry:
	default:
		return invalidApply("unknown apply mode %q", next.mode)
	}

	if next.mode == ApplyReboot && AtLeast(talos, 1, 14) {
		return &labelled{ErrApplyModeUnsupported, "the REBOOT mode is not supported, use STAGED and reboot the machine"}
	}

	config, err := readConfiguration(next.text)
	if err != nil {
		return invalidApply("%w", err)
	}

	next.config = config

	if err := config.check(talos); err != nil {
		return invalidApply("%w", err)
	}

	if err := config.checkLost(n.configured); err != nil {
		return invalidApply("%w", err)
	}

	next.reply.Mode = n.applyMode(next, talos)

	if next.reply.Mode == ApplyNoReboot {
		if lines := n.configured.slowChanges(config); len(lines) > 0 && !AtLeast(talos, 1, 14) {
			return invalidApply("this config change can't be applied in immediate mode\ndiff: %s", strings.Join(lines, "\n"))
		}
	}

	if next.dryRun {
		return nil
	}

	if err := n.checkBusy(talos); err != nil {
		return err
	}

	return w.strikeApply(n, next)
}

// applyMode returns the mode in which a machine applies a configuration. It chooses only for auto and try.
func (n *node) applyMode(next *application, talos string) ApplyMode {
	slow := len(n.configured.slowChanges(next.config)) > 0 && !AtLeast(talos, 1, 14)

	switch {
	case next.mode == ApplyTry, next.mode == ApplyAuto && !slow:
		return ApplyNoReboot
	case next.mode == ApplyAuto:
		return ApplyReboot
	default:
		return next.mode
	}
}

// checkBusy refuses a second configuration while one is being applied. Machines below Talos 1.13.3 take both, and
// the last one stays.
func (n *node) checkBusy(talos string) error {
	first, err := parseVersion("1.13.3")
	if err != nil {
		return err
	}

	running, err := parseVersion(talos)
	if err != nil || running.LessThan(first) {
		return err
	}

	switch {
	case n.restarting:
		return &labelled{ErrApplyBusy, "configuration was already applied and node is rebooting, please retry after reboot"}
	case n.applying:
		return ErrApplyBusy
	default:
		return nil
	}
}

// strikeApply refuses a configuration if the script says so, or keeps the fault for later.
func (w *World) strikeApply(n *node, next *application) error {
	if next.by != "client" {
		return nil
	}

	fault, struck := w.takeFaultOf(n.name, StepApply, scope{components: n.changes(n.configured, next.config)})
	if !struck {
		return nil
	}

	next.fault = fault

	switch fault.Effect {
	case EffectFail:
		return invalidApply("%s", fault.text("configuration validation failed: 1 error occurred:\n\t* the configuration was refused"))
	case EffectBusy:
		return &labelled{ErrApplyBusy, fault.text(ErrApplyBusy.Error())}
	default:
		return nil
	}
}

// finishApply makes a configuration take effect, or only records it if it is a dry run.
func (w *World) finishApply(life context.Context, n *node, next *application) {
	if life.Err() != nil {
		next.err = ErrConnectionLost

		return
	}

	if !next.dryRun {
		n.applying = false
	}

	before, text := n.configured, n.config
	next.reply.Details = details(n, next)
	w.recordApply(n, next, before, nil)

	if next.dryRun {
		return
	}

	w.accept(n, next)

	if next.fault.Effect == EffectOverwritten {
		w.overwrite(n, text)
	}
}

// check checks a decoded configuration as a version of Talos does.
func (c *configuration) check(talos string) error {
	documents := AtLeast(talos, 1, 14)

	for _, kind := range c.kinds {
		if newKind(kind) && !documents {
			return fmt.Errorf("error decoding document v1alpha1/%s/: %q %q: not registered", kind, kind, "v1alpha1")
		}
	}

	for i, kind := range c.kinds {
		if newKind(kind) && slices.Contains(c.kinds[:i], kind) {
			return fmt.Errorf("not allowed to have more than one document of kind %s", kind)
		}
	}

	if kind, _ := child(c.main, "machine")["type"].(string); kind != string(ControlPlane) && kind != string(Worker) {
		return problem("unknown machine type %q", kind)
	}

	if documents {
		if err := c.checkConflicts(); err != nil {
			return err
		}
	}

	return c.checkImages(talos)
}

// checkLost refuses a document that no longer names the image of its component.
func (c *configuration) checkLost(before *configuration) error {
	for _, component := range componentNames() {
		_, document := c.documents[placeOf(component).kind]
		if document && c.image(component) == "" && before.image(component) != "" && !c.disabled(component) {
			return problem("%s: %s image cannot be empty", placeOf(component).kind, component)
		}
	}

	return nil
}

// newKind reports whether a kind of document is one of those that replace parts of the main document from Talos
// 1.14 on.
func newKind(kind string) bool {
	return kind == installKind || strings.HasPrefix(kind, "Kube")
}

// checkConflicts refuses a component that is configured both in the main document and in one of its own.
func (c *configuration) checkConflicts() error {
	for _, component := range append(componentNames(), CoreDNSName) {
		at := placeOf(component)
		_, document := c.documents[at.kind]

		if _, main := child(c.main, at.section)[at.field]; main && document {
			return problem("%s config is already set in v1alpha1 config (.%s.%s)", component, at.section, at.field)
		}
	}

	if _, document := c.documents[installKind]; document && child(c.main, "machine")["install"] != nil {
		return problem("install config is already set in v1alpha1 config (.machine.install)")
	}

	return nil
}

// checkImages checks the images; from Talos 1.14 on their versions too.
func (c *configuration) checkImages(talos string) error {
	for _, component := range componentNames() {
		value, given := c.section(component)["image"]
		if !given {
			continue
		}

		image, isText := value.(string)
		if !isText || strings.ContainsAny(image, " \t\n") {
			return problem("%s: image %v is not a valid reference", component, value)
		}

		if image == "" || !AtLeast(talos, 1, 14) {
			continue
		}

		if err := checkSupport(talos, image); err != nil {
			return problem("%s: %w", component, err)
		}
	}

	return nil
}

// problem returns a finding in the form of the errors of Talos' validation.
func problem(format string, args ...any) error {
	return fmt.Errorf("configuration validation failed: 1 error occurred:\n\t* "+format+"\n\n", args...)
}

// changes lists the components for which a machine would run another image after a change of its configuration, and
// the installer if its image changes.
func (n *node) changes(from, to *configuration) []string {
	var changed []string

	for _, component := range n.configuredNames() {
		if n.imageIn(from, component) != n.imageIn(to, component) {
			changed = append(changed, component)
		}
	}

	if from.install() != to.install() {
		changed = append(changed, InstallerName)
	}

	return changed
}

// recordApply notes a configuration that takes effect, or why it does not.
func (w *World) recordApply(n *node, next *application, before *configuration, err error) {
	var changed []string
	if next.config != nil {
		changed = n.changes(before, next.config)
	}

	mode := next.mode
	if next.reply.Mode != "" {
		mode = next.reply.Mode
	}

	w.record(n.name, history.KindConfig, map[string]string{
		"mode": string(mode), "code": applyCode(err), "dry_run": strconv.FormatBool(next.dryRun),
		"changed": strings.Join(changed, ","), "by": next.by,
	})
}

// details returns what a machine says about how it applied a configuration.
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

// applyCode returns the gRPC code of an error on the wire.
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

// checkSupport checks the Kubernetes version of an image as machines do from Talos 1.14 on before they accept it.
func checkSupport(talos, image string) error {
	const newest, lines = 23, 5 // Talos 1.14 runs Kubernetes 1.32 to 1.37, and so on.

	running, err := parseVersion(talos)
	if err != nil {
		return err
	}

	v, err := imageVersion(image)
	if err != nil {
		return fmt.Errorf("error parsing Kubernetes version from image: %w", err)
	}

	switch most := running.Minor() + newest; {
	case v.Major() != 1 || v.Minor() > most:
		return fmt.Errorf("version of Kubernetes %s is too new to be used with Talos %s", v, running)
	case v.Minor()+lines < most:
		return fmt.Errorf("version of Kubernetes %s is too old to be used with Talos %s", v, running)
	default:
		return nil
	}
}
