// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// installed judges an installer that ended, whoever started it.
func (c *Checker) installed(event history.Event) {
	n := c.node(event.Node)
	talos, schematic := event.Detail["talos"], event.Detail["schematic"]

	// An installer that failed may have written all the same.
	if n.installers > 0 && event.Detail["by"] != byOther {
		c.violate(S4, n.name, "installed Talos %s although an installer had run since the last boot %s", talos, n.bootID)
	}

	n.unwritten = wroteNothing(talos, event.Detail["exit"])
	if !n.unwritten {
		n.installers++
	}

	if event.Detail["by"] == byOther {
		n.byHand(event)

		return
	}

	n.returnable = true

	c.checkHeld(n, "installed")

	if event.Detail["exit"] != "0" {
		return
	}

	n.installs++
	n.armed, n.ours = talos, true

	if talos == n.talos && schematic == n.schematic {
		c.violate(S4, n.name, "installed Talos %s, which it runs already", talos)
	}

	c.checkMove(n, "installed", talos)
}

// wroteNothing reports whether an installer ended before it changed anything: from Talos 1.14 on these codes are
// for wrong input and for an unsuitable host.
func wroteNothing(talos, exit string) bool {
	return slices.Contains([]string{"2", "3", "4"}, exit) && parse(talos).AtLeast(1, 14)
}

// byHand notes an installer that somebody else ran, which is not judged.
func (n *node) byHand(event history.Event) {
	if event.Detail["exit"] == "0" {
		n.installs++
		n.armed, n.ours = event.Detail["talos"], false
	}
}

// checkMove asserts that a version neither goes down nor skips a minor.
func (c *Checker) checkMove(n *node, what, to string) {
	from, next := parse(n.talos), parse(to)
	if from.IsZero() || next.IsZero() {
		return
	}

	switch {
	case next.Less(from):
		c.violate(S5, n.name, "%s Talos %s over %s, which is newer", what, to, n.talos)
	case next.Minor().Compare(from.Minor().Next()) > 0:
		c.violate(S5, n.name, "%s Talos %s over %s, which skips a minor", what, to, n.talos)
	}
}

// booted judges a kernel that started, and with it what it runs.
func (c *Checker) booted(n *node, event history.Event) {
	talos, kubernetes := event.Detail["talos"], event.Detail["kubelet"]
	fallback := event.Detail["fallback"] == isTrue
	returned := event.Detail["cause"] == "rollback" && c.mayRollBack(n, talos)

	if n.expected {
		n.expected, n.lostAt = false, c.at
	}

	if n.goingDown {
		// A boot because of us is a step of its own.
		c.stepped(n, false)
	}

	if !fallback && !returned && !(n.armed == talos) {
		c.checkMove(n, "booted", talos)
	}

	platform := event.Detail["platform"]
	if n.ours && !fallback && platform != n.platform {
		c.violate(S5, n.name, "booted on platform %s, and ran on %s before", platform, n.platform)
	}

	c.compareExtensions(n, event, fallback)

	other := kubernetes != "" && kubernetes != n.runs(kubelet)
	moved := talos != n.talos || other

	n.inBoot(event.Detail["boot_id"], boot{talos: talos, schematic: event.Detail["schematic"], platform: platform}, c.at)
	n.ours = false
	delete(c.unheard, n.name)
	n.up, n.goingDown, n.stage, n.asked = true, false, "booting", 0
	n.cameUp = c.now
	n.installers, n.unwritten, n.armed, n.reverted = 0, false, "", false
	n.reboots++

	c.bootParts(n)

	if other {
		// Components that no configuration pins move together.
		c.moveTogether(n, kubernetes)
	}

	if moved {
		c.checkSkew(n, kubelet)

		for _, name := range slices.Sorted(maps.Keys(n.parts)) {
			if c.speaks(name) {
				c.checkSupport(n, name)
			}
		}
	}
}

// compareExtensions notes which extensions the node lost with a boot. That is asserted when the node is put back
// into service.
func (c *Checker) compareExtensions(n *node, event history.Event, fallback bool) {
	now, schematic := extensionsIn(event), event.Detail["schematic"]
	chosen := schematic != "" || c.options.skips[skipSchematic]

	if n.ours && !fallback && !chosen {
		n.missing = append(n.missing, n.extensions...)
	}

	n.missing = slices.DeleteFunc(n.missing, func(name string) bool { return chosen || slices.Contains(now, name) })
	n.extensions = now
}

// extensionsIn returns the extensions that a machine runs according to an event.
func extensionsIn(event history.Event) []string {
	return strings.FieldsFunc(event.Detail["extensions"], func(r rune) bool { return r == ',' })
}

// checkExtensions asserts S5 for a node that is put back into service.
func (c *Checker) checkExtensions(n *node) {
	if len(n.missing) > 0 {
		c.violate(S5, n.name, "was uncordoned without the extensions %v, which it ran before", n.missing)
	}
}

// atTarget reports whether a node runs what the present run wants there now.
func (c *Checker) atTarget(n *node) bool {
	wanted := cmp.Or(n.wanted, c.target)

	return wanted != "" && n.talos == wanted
}

// checkSupport asserts S6 for a component that a node runs now.
func (c *Checker) checkSupport(n *node, name string) {
	talos, kubernetes := parse(n.talos), parse(n.runs(name))
	if talos.IsZero() || kubernetes.IsZero() {
		return
	}

	oldest, newest, known := supported(talos.Minor())
	if !known {
		return
	}

	if kubernetes.Minor().Compare(oldest) < 0 || kubernetes.Minor().Compare(newest) > 0 {
		c.violate(S6, n.name, "runs %s %s on Talos %s, which supports %s to %s", name, n.runs(name), n.talos, oldest, newest)
	}
}

// supported returns the Kubernetes minors that a Talos minor runs. The table is written down here a second time on
// purpose: a checker that shares it with what it judges would share its errors.
func supported(talos version.Minor) (oldest, newest version.Minor, known bool) {
	ranges := map[uint64][2]uint64{
		2: {23, 25}, 3: {24, 26}, 4: {25, 27}, 5: {26, 28}, 6: {24, 29}, 7: {25, 30}, 8: {26, 31},
		9: {27, 32}, 10: {28, 33}, 11: {29, 34}, 12: {30, 35}, 13: {31, 36}, 14: {32, 37}, 15: {33, 38},
	}

	minors, known := ranges[talos.Minor]
	if talos.Major != 1 || !known {
		return version.Minor{}, version.Minor{}, false
	}

	return version.Minor{Major: 1, Minor: minors[0]}, version.Minor{Major: 1, Minor: minors[1]}, true
}

// parse parses a version; zero if it is not valid.
func parse(text string) version.Version {
	parsed, err := version.Parse(text)
	if err != nil {
		return version.Version{}
	}

	return parsed
}
