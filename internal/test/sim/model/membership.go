// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// NodeOptions describe a machine that joins; empty fields are as for the machines that the cluster began with.
type NodeOptions struct {
	// Name is the next free cp-N or worker-N if empty.
	Name string
	Role Role
	// Talos is a version with or without v.
	Talos      string
	Schematic  string
	Platform   string
	Kubernetes string
}

// AddNode lets a machine join: it boots, and is ready after the usual time. A
// control plane joins etcd as a learner and is promoted when it has caught up.
// It returns the machine's name.
func (w *World) AddNode(options NodeOptions) (string, error) {
	var (
		name string
		fail error
	)

	w.locked(func() {
		if w.stopped.Load() {
			fail = errStopped

			return
		}

		n, err := w.build(options)
		if err != nil {
			fail = err

			return
		}

		name = n.name
		if n.etcd != nil {
			n.etcd.learner = true
		}

		n.downAt = w.clock.Now()
		w.introduce(n, true)
		w.strikeTroubles(n)
		w.touch(n)
		w.spawn(w.life, func(ctx context.Context) { w.boot(ctx, n, causeReboot) })
	})

	return name, fail
}

// RemoveNode takes a machine out of the cluster as a reset does: it leaves etcd, and nothing answers at its address
// any more. Discovery lists it for as long as a machine that is switched off.
func (w *World) RemoveNode(nameOrAddress string) error {
	var fail error

	w.locked(func() {
		n, err := w.find(nameOrAddress)
		if err != nil {
			fail = err

			return
		}

		if len(w.nodes) == 1 {
			fail = errors.New("the last machine cannot be removed")

			return
		}

		w.takeDown(n, "client", true)
		n.kill()

		if n.dead != nil {
			n.revive()
		}

		w.left = append(w.left, w.state(n))
		n.removed = true
		n.etcd = nil
		w.nodes = slices.DeleteFunc(w.nodes, func(other *node) bool { return other == n })
		maps.DeleteFunc(w.named, func(_ string, other *node) bool { return other == n })
		w.reconsider()
	})

	return fail
}

// build makes a machine and puts it into the cluster, switched off.
func (w *World) build(options NodeOptions) (*node, error) {
	options, err := w.complete(options)
	if err != nil {
		return nil, err
	}

	seed, defaults := w.options.Seed, w.options
	defaults.Platform = options.Platform

	content, err := parseInstaller(defaults.installerFor(options.Talos, options.Schematic))
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", options.Name, err)
	}

	content.platform, content.tag = options.Platform, w.options.TalosTag
	if len(w.options.Extensions) > 0 {
		content.extensions = joined(w.options.Extensions)
	}

	identity, machineID := drawIdentity(seed, "identity", options.Name)

	n := &node{
		index: w.joined, name: options.Name, role: options.Role, address: w.options.address(w.joined),
		outer: w.options.outer(w.joined), other: w.options.other(w.joined),
		uuid:     drawUUID(seed, "uuid", options.Name),
		identity: identity, machineID: machineID,
		secure: defaults.SecureBoot,
		uki:    defaults.UKI || defaults.SecureBoot,
		drawn:  map[string]uint64{},
		slots:  [2]system{content},
		tag:    -1, selected: true,
		images: imageStore{}, ownImages: imageStore{}, damaged: map[string]bool{},
		pulled:   map[runtimeImage]time.Time{},
		troubles: map[trouble]time.Time{},
		bootID:   drawUUID(seed, "boot", options.Name, "0"),
		stage:    StageBooting,
		events:   newRing(options.Name + "-0-"),
	}

	n.load(0)
	n.entries[0] = n.nextEntry(content)

	n.unpinned = options.Kubernetes
	if err := w.writeConfig(n, options.Kubernetes); err != nil {
		return nil, fmt.Errorf("machine %s: %w", options.Name, err)
	}

	n.components.Proxy = w.proxyAtStart(options.Kubernetes)
	n.components = w.componentsAtBoot(n)
	n.kubelet.Version = n.components.Kubelet
	n.makePods()

	if n.role == ControlPlane {
		n.etcd = &member{id: drawUint(seed, "etcd", n.name)}
	}

	n.start(w.life)
	w.joined++
	w.nodes = append(w.nodes, n)

	for _, called := range append(n.inner(), n.name) {
		w.named[called] = n
	}

	return n, nil
}

func (w *World) complete(options NodeOptions) (NodeOptions, error) {
	if options.Role != ControlPlane && options.Role != Worker {
		return options, fmt.Errorf("role %q: want %s or %s", options.Role, ControlPlane, Worker)
	}

	if options.Name == "" {
		options.Name = w.freeName(options.Role)
	}

	if _, err := w.find(options.Name); err == nil {
		return options, fmt.Errorf("machine %s exists already", options.Name)
	}

	if options.Talos == "" {
		options.Talos = w.options.Talos
	}

	version, err := parseVersion(options.Talos)
	if err != nil {
		return options, fmt.Errorf("talos version %q: %w", options.Talos, err)
	}

	options.Talos = version.String()

	if options.Kubernetes == "" {
		options.Kubernetes = w.options.Kubernetes
	}

	if options.Schematic == "" {
		options.Schematic = w.options.Schematic
	}

	if options.Platform == "" {
		options.Platform = w.options.Platform
	}

	return options, nil
}

func (w *World) freeName(role Role) string {
	prefix := "worker-"
	if role == ControlPlane {
		prefix = "cp-"
	}

	for i := 0; ; i++ {
		name := prefix + strconv.Itoa(i)
		if _, err := w.find(name); err != nil {
			return name
		}
	}
}

// address returns the address with a number in a network that exists nowhere else. IPv6 addresses are spelled as
// the standard requires.
func (o Options) address(index int) string {
	const first, octet = 2, 256

	if o.IPv6 {
		return fmt.Sprintf("fd05::%x", first+index)
	}

	return fmt.Sprintf("10.5.%d.%d", (first+index)/octet, (first+index)%octet)
}

// outer returns the address of a machine from outside; empty for none.
func (o Options) outer(index int) string {
	const first = 2

	if !o.ManyAddresses {
		return ""
	}

	return fmt.Sprintf("203.0.113.%d", first+index)
}

// other returns the inner address of a machine of the other IP family; empty for none.
func (o Options) other(index int) string {
	if !o.ManyAddresses {
		return ""
	}

	o.IPv6 = !o.IPv6

	return o.address(index)
}

// inner returns the addresses at which a machine answers.
func (n *node) inner() []string {
	return slices.DeleteFunc([]string{n.address, n.other}, func(address string) bool { return address == "" })
}

// addresses returns all addresses of a machine in the order in which clouds name them: the one from outside first.
func (n *node) addresses() []string {
	if n.outer == "" {
		return n.inner()
	}

	return append([]string{n.outer}, n.inner()...)
}

// hostPort joins an address and a port, with brackets around an IPv6 address.
func hostPort(address, port string) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}

	return address + ":" + port
}

// introduce records a machine, which either was there when the simulation began
// or joins now.
func (w *World) introduce(n *node, joins bool) {
	running := n.running()

	var etcdID string
	if n.etcd != nil {
		etcdID = memberID(n.etcd.id)
	}

	w.record(n.name, history.KindNode, running.described(map[string]string{
		"role": string(n.role), "address": n.address, "uuid": n.uuid, "machine_id": n.machineID,
		"talos": running.talos, "kubelet": n.kubelet.Version, "kubernetes": n.components.lowest(),
		"schematic": running.schematic, "platform": n.platform(),
		"secure_boot": strconv.FormatBool(n.secure), "boot_id": n.bootID, "etcd_id": etcdID,
		"joins": strconv.FormatBool(joins),
	}))

	for _, component := range staticNames() {
		if pod, found := n.pods[component]; found && pod.Disabled {
			w.recordOff(n, component)
		}
	}
}

// memberLifetime is how long discovery keeps a machine that says nothing.
const memberLifetime = 30 * time.Minute

// Member is a machine as discovery lists it.
type Member struct {
	Name, Identity string
	Role           Role
	// Talos is the version of its last boot.
	Talos string
	// Addresses are as in [NodeState].
	Addresses []string
}

// Members returns the machines that discovery lists: all that were up within the last half hour, including those
// that were removed since. Of two machines with the same name it lists the newer one. Control planes come first,
// removed machines last. If discovery is switched off, it lists none.
func (w *World) Members() []Member {
	if w.options.DiscoveryOff {
		return nil
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	now, members := w.clock.Now(), make([]Member, 0, len(w.nodes))
	forgotten := func(up bool, downAt time.Time) bool {
		return !up && !downAt.IsZero() && now.Sub(downAt) > memberLifetime
	}

	for _, n := range w.nodes {
		if !forgotten(n.up, n.downAt) {
			members = append(members, Member{n.name, n.identity, n.role, n.running().talos, n.addresses()})
		}
	}

	slices.SortStableFunc(members, func(a, b Member) int { return roleOrder(a.Role) - roleOrder(b.Role) })

	for _, state := range slices.Backward(w.left) {
		_, newer := w.named[state.Name]
		newer = newer || slices.ContainsFunc(members, func(other Member) bool { return other.Name == state.Name })

		if !newer && !forgotten(state.Up, state.DownAt) {
			members = append(members, Member{state.Name, state.Identity, state.Role, state.Talos, state.Addresses})
		}
	}

	return members
}
