// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// striking serves a cluster with a strike at each call of one method.
func striking(t *testing.T, method string, strike wire.Strike, test func(*testing.T, *model.World, *wire.Server, *client.Client, func() []wire.Call)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		world, err := model.New(model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.13.2", Schematic: schematic})
		if err != nil {
			t.Fatal(err)
		}
		defer world.Stop()

		var (
			mu    sync.Mutex
			calls []wire.Call
		)

		server, err := wire.New(wire.Options{World: world, InMemory: true, Intercept: func(_ context.Context, call wire.Call) wire.Strike {
			mu.Lock()
			defer mu.Unlock()

			calls = append(calls, call)

			if call.Method != method {
				return wire.Strike{}
			}

			return strike
		}})
		if err != nil {
			t.Fatal(err)
		}

		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer server.Stop()

		text, err := server.Talosconfig()
		if err != nil {
			t.Fatal(err)
		}

		config, err := clientconfig.FromBytes(text)
		if err != nil {
			t.Fatal(err)
		}

		api, err := client.New(t.Context(), client.WithConfig(config),
			client.WithGRPCDialOptions(grpc.WithContextDialer(server.Dialer()), grpc.WithUserAgent("run-7")))
		if err != nil {
			t.Fatal(err)
		}

		test(t, world, server, api, func() []wire.Call {
			mu.Lock()
			defer mu.Unlock()

			return calls
		})

		if err := api.Close(); err != nil {
			t.Error(err)
		}

		synctest.Wait()

		if left := server.Connections(); left != 0 {
			t.Errorf("%d connections are left", left)
		}
	})
}

const (
	methodPull   = "/machine.ImageService/Pull"
	methodReboot = "/machine.MachineService/Reboot"
)

func TestStrike_BeforeACall(t *testing.T) {
	striking(t, methodReboot, wire.Strike{Cut: wire.CutBefore}, func(t *testing.T, world *model.World, server *wire.Server, api *client.Client, calls func() []wire.Call) {
		_, err := api.MachineClient.Reboot(client.WithNode(t.Context(), "10.5.0.3"), &machine.RebootRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the call ended with %v, want a connection that broke", err)
		}

		time.Sleep(time.Minute)

		if state, err := world.Node("worker-0"); err != nil || !state.Up {
			t.Errorf("the node rebooted all the same: %+v, %v", state, err)
		}

		want := wire.Call{Client: "run-7", Method: methodReboot, Node: "worker-0", Through: "cp-0", Mutates: true}
		if got := calls(); len(got) != 1 || got[0] != want {
			t.Errorf("the calls were %+v, want %+v", got, want)
		}

		// The next call has a new connection.
		if _, err := api.MachineClient.Version(t.Context(), &emptypb.Empty{}); err != nil {
			t.Errorf("the next call failed: %v", err)
		}

		if open := server.Connections(); open != 1 {
			t.Errorf("%d connections are open, want 1", open)
		}
	})
}

func TestStrike_AfterACall(t *testing.T) {
	striking(t, methodReboot, wire.Strike{Cut: wire.CutAfter}, func(t *testing.T, world *model.World, _ *wire.Server, api *client.Client, _ func() []wire.Call) {
		_, err := api.MachineClient.Reboot(client.WithNode(t.Context(), "10.5.0.3"), &machine.RebootRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the call ended with %v, want a connection that broke", err)
		}

		before, err := world.Node("worker-0")
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(5 * time.Minute)

		if after, err := world.Node("worker-0"); err != nil || after.BootID == before.BootID {
			t.Errorf("the node did not reboot: %+v, %v", after, err)
		}
	})
}

func TestStrike_WithholdsTheResultOfAStream(t *testing.T) {
	for name, strike := range map[string]wire.Strike{"cut": {Cut: wire.CutAfter}, "ended": {Cut: wire.EndBefore}, "let pass": {}} {
		t.Run(name, func(t *testing.T) {
			striking(t, methodPull, strike, func(t *testing.T, _ *model.World, _ *wire.Server, api *client.Client, _ func() []wire.Call) {
				stream, err := api.ImageClient.Pull(client.WithNode(t.Context(), "10.5.0.3"), &machine.ImageServicePullRequest{
					Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM},
					ImageRef:   factoryImage,
				})
				if err != nil {
					t.Fatal(err)
				}

				progress, result := 0, false

				for err == nil {
					var response *machine.ImageServicePullResponse

					response, err = stream.Recv()
					if response.GetPullProgress() != nil {
						progress++
					}

					result = result || response.GetName() != ""
				}

				if clean := errors.Is(err, io.EOF); clean == (name == "cut") {
					t.Errorf("the stream ended with %v", err)
				}

				if result != (name == "let pass") || (progress > 0) != (name != "ended") {
					t.Errorf("%d messages of progress came, the result %t", progress, result)
				}
			})
		})
	}
}
