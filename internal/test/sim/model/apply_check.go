// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// check is what a version of Talos looks at in a configuration that it could
// decode.
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

// checkLost refuses a document that has lost the image of its component.
func (c *configuration) checkLost(before *configuration) error {
	for _, component := range componentNames() {
		_, document := c.documents[placeOf(component).kind]
		if document && c.image(component) == "" && before.image(component) != "" && !c.disabled(component) {
			return problem("%s: %s image cannot be empty", placeOf(component).kind, component)
		}
	}

	return nil
}

// newKind tells whether a kind of document is one of those that took over from
// the main document in Talos 1.14.
func newKind(kind string) bool {
	return kind == installKind || strings.HasPrefix(kind, "Kube")
}

// checkConflicts refuses a component in both forms.
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

// checkImages looks at the images; from Talos 1.14 on at their versions too.
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

// problem is a finding in the form of the errors of Talos' validation.
func problem(format string, args ...any) error {
	return fmt.Errorf("configuration validation failed: 1 error occurred:\n\t* "+format+"\n\n", args...)
}

// changes lists the components for which a machine means to run another image
// after a change of its configuration, and the installer if it names another.
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
