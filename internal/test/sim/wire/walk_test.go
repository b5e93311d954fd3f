// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestMachineHasTheServicesOfItsVersion is about a machine that walks from 1.10
// over 1.13, where the new services begin, to 1.15.
func TestMachineHasTheServicesOfItsVersion(t *testing.T) {
	const factory, node = "factory.talos.dev/metal-installer/" + model.EmptySchematic, "10.5.0.3"

	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.10.7", Kubernetes: "1.33.4"}, func(r *rig) {
		c := r.client("")

		for _, to := range []string{"1.11.5", "1.12.6", "1.13.4"} {
			_, err := r.pull(c, node, factory+":v"+to)
			r.wantCode("pull before "+to, err, codes.Unimplemented, "unknown service machine.ImageService")

			_, err = c.UpgradeWithOptions(r.at(node), client.WithUpgradeImage(factory+":v"+to)) //nolint:staticcheck // the only way on these versions
			if err != nil {
				r.Fatalf("upgrade to %s: %v", to, err)
			}

			r.awaitVersion(c, node, to)
		}

		for _, to := range []string{"1.14.1", "1.15.0"} {
			if _, err := r.pull(c, node, factory+":v"+to); err != nil {
				r.Fatalf("pull of %s: %v", to, err)
			}

			if exit, err := r.install(c, node, factory+":v"+to); err != nil || exit != 0 {
				r.Fatalf("install of %s: %d, %v", to, exit, err)
			}

			if err := c.Reboot(r.at(node)); err != nil {
				r.Fatal(err)
			}

			r.awaitVersion(c, node, to)
		}
	})
}

// awaitVersion waits for the boot of worker-0 and for what it runs then.
func (r *rig) awaitVersion(c *client.Client, node, want string) {
	r.Helper()
	r.until("worker-0", "down", 3*time.Minute, down)
	r.until("worker-0", "ready", 5*time.Minute, ready)
	time.Sleep(15 * time.Second) // the proxies' pause

	if got, err := r.version(c, node); err != nil || got != "v"+want {
		r.Fatalf("runs %q, %v, want %s", got, err, want)
	}
}
