// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"strings"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// through is a client with some of the endpoints only.
func (r *rig) through(endpoints ...string) *talosapi.Client {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	contexts, err := clientconfig.FromBytes(text)
	if err != nil {
		r.Fatal(err)
	}

	contexts.Contexts[r.world.ClusterName()].Endpoints = endpoints

	if text, err = contexts.Bytes(); err != nil {
		r.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, r.world.ClusterName())
	if err != nil {
		r.Fatal(err)
	}

	made, err := talosapi.New(config, talosapi.Options{DialContext: r.server.Dialer()})
	if err != nil {
		r.Fatal(err)
	}

	r.Cleanup(func() {
		if err := made.Close(); err != nil {
			r.Error(err)
		}
	})

	return made
}

// install brings the next system onto a node and reboots into it.
func (r *rig) install(c *talosapi.Client, address string) {
	r.Helper()

	if err := c.Pull(r.Context(), address, nextImage, cluster.LifecycleAPI); err != nil {
		r.Fatal(err)
	}

	if done, err := c.Install(r.Context(), address, nextImage); err != nil || done.Exit != 0 {
		r.Fatalf("install: %+v, %v", done, err)
	}

	if err := c.Reboot(r.Context(), address, cluster.RebootDefault); err != nil {
		r.Fatal(err)
	}
}

// answers asks a node again and again until it answers, and returns when that
// was. Until then nothing else may come back than that it is unreachable.
func (r *rig) answers(c *talosapi.Client, address string, most time.Duration, seen func(cluster.Machine) bool) time.Time {
	r.Helper()

	ticker := time.NewTicker(503 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(most); time.Now().Before(deadline); <-ticker.C {
		machine, err := c.Machine(r.Context(), address, nil)

		switch {
		case err == nil && seen(machine):
			return time.Now()
		case err != nil && (!errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) || !strings.Contains(err.Error(), address)):
			r.Fatalf("on the way: %v, want it unreachable and named", err)
		}
	}

	r.Fatalf("%s does not answer within %s", address, most)

	return time.Time{}
}

// booted tells a machine on another boot than before.
func booted(before cluster.Machine) func(cluster.Machine) bool {
	return func(now cluster.Machine) bool { return now.BootID != before.BootID && now.Settled() }
}

func (r *rig) fault(node string, step model.Step, effect model.Effect) {
	r.world.SetFaults([]model.Fault{{Node: node, Step: step, Effect: effect, Times: 1}})
}

// idle waits until no installer runs on a node.
func (r *rig) idle(c *talosapi.Client, address string) {
	r.Helper()

	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()

	for range 60 {
		<-ticker.C

		if idle, err := c.InstallerIdle(r.Context(), address); err != nil {
			r.Fatal(err)
		} else if idle {
			return
		}
	}

	r.Fatalf("the installer on %s never ended", address)
}
