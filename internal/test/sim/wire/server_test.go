// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func withRole(ctx context.Context, role string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, constants.APIAuthzRoleMetadataKey, role)
}

func TestServer_OverSocketsAtSpeed(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })

	const speed = 300

	options := model.Options{ControlPlanes: 2, Workers: 1, Clock: model.NewScaledClock(speed)}

	serve(t, options, false, func(r *rig) {
		endpoint := r.server.Endpoints()[0].Address
		other := r.client("")

		if name := r.hostname(r.client("-worker")); name != "worker-0" {
			r.Fatalf("got %s", name)
		}

		open, err := net.Dial("tcp", endpoint)
		if err != nil {
			r.Fatal(err)
		}

		defer func() { _ = open.Close() }()

		if _, err := r.world.Reboot(r.Context(), "cp-0", model.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", 10*time.Second, down)
		eventually(r, "refuses connections", func() bool {
			conn, err := net.Dial("tcp", endpoint)
			if err == nil {
				_ = conn.Close()
			}

			return err != nil
		})

		_ = open.SetReadDeadline(time.Now().Add(5 * time.Second))

		if _, err := open.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			r.Fatalf("a connection outlived its machine: %v", err)
		}

		if version, err := r.version(other, "10.5.0.3"); err != nil || version != "v1.13.2" {
			r.Fatalf("through the other control plane: %q, %v", version, err)
		}

		r.until("cp-0", "ready", 10*time.Second, ready)

		if back := r.server.Endpoints()[0].Address; back != endpoint {
			r.Fatalf("came back at %s instead of %s", back, endpoint)
		}

		eventually(r, "accepts connections again", func() bool {
			conn, err := net.Dial("tcp", endpoint)
			if err == nil {
				_ = conn.Close()
			}

			return err == nil
		})
	})
}

func TestServer_EndpointsComeAndGoWithMachines(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })

	const speed = 600

	options := model.Options{ControlPlanes: 1, Workers: 1, Clock: model.NewScaledClock(speed)}

	serve(t, options, false, func(r *rig) {
		name, err := r.world.AddNode(model.NodeOptions{Role: model.Worker, Talos: "1.12.6"})
		if err != nil {
			r.Fatal(err)
		}

		r.until(name, "ready", 10*time.Second, ready)
		eventually(r, "answers", func() bool {
			version, err := r.version(r.client(""), "10.5.0.4")

			return err == nil && version == "v1.12.6"
		})

		if err := r.world.RemoveNode(name); err != nil {
			r.Fatal(err)
		}

		if endpoints := r.server.Endpoints(); len(endpoints) != 2 {
			r.Fatalf("endpoints: %v", endpoints)
		}
	})
}

func eventually(r *rig, what string, cond func() bool) {
	r.Helper()

	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}

	r.Fatalf("it never %s", what)
}
