// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

const (
	schematic    = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	factoryImage = "factory.talos.dev/metal-installer/" + schematic + ":v1.13.4"
	secretText   = "kubeconfig of the simulation"
)

// kindSync marks in the log when the server called Sync of the other faces.
const kindSync history.Kind = "sync"

// rig is a served world with a way to make clients.
type rig struct {
	*testing.T
	world  *model.World
	server *wire.Server
	log    *log
}

type log struct {
	mu     sync.Mutex
	events []history.Event
}

func (l *log) Record(node string, kind history.Kind, detail map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.events = append(l.events, history.Event{Node: node, Kind: kind, Detail: detail})
}

// soFar returns the history once all goroutines in the bubble are blocked: the machine records the end of a call,
// and it learns later than the caller that a caller has left.
func (l *log) soFar() []history.Event {
	synctest.Wait()

	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Clone(l.events)
}

// calls returns the calls that ended, as "method role code".
func (l *log) calls() []string {
	var calls []string

	for _, event := range l.soFar() {
		if event.Kind == history.KindRPC {
			calls = append(calls, event.Detail["method"]+" "+event.Detail["role"]+" "+event.Detail["code"])
		}
	}

	return calls
}

// inBubble serves a world in memory and in virtual time.
func inBubble(t *testing.T, options model.Options, test func(*rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) { serve(t, options, true, test) })
}

func serve(t *testing.T, options model.Options, inMemory bool, test func(*rig)) {
	t.Helper()

	r := &rig{T: t, log: &log{}}
	options.Recorder = r.log

	if options.Talos == "" {
		options.Talos = "1.13.2"
	}

	var err error

	if r.world, err = model.New(options); err != nil {
		t.Fatal(err)
	}

	defer r.world.Stop()

	r.server, err = wire.New(wire.Options{
		World: r.world, InMemory: inMemory,
		Kubeconfig: func() ([]byte, error) { return []byte(secretText), nil },
		Sync: func(context.Context) error {
			r.log.Record("", kindSync, nil)

			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	defer r.server.Stop()

	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	test(r)
}

// client connects with a context of the talosconfig, named by its suffix.
func (r *rig) client(suffix string, options ...client.OptionFunc) *client.Client {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	config, err := clientconfig.FromBytes(text)
	if err != nil {
		r.Fatal(err)
	}

	options = append([]client.OptionFunc{
		client.WithConfig(config),
		client.WithContextName(r.world.ClusterName() + suffix),
		client.WithGRPCDialOptions(grpc.WithContextDialer(r.server.Dialer())),
	}, options...)

	made, err := client.New(r.Context(), options...)
	if err != nil {
		r.Fatal(err)
	}

	r.Cleanup(func() { _ = made.Close() })

	return made
}

// within returns a context for one call.
func (r *rig) within(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	r.Cleanup(cancel)

	return ctx
}

// at targets a machine by the metadata key node.
func (r *rig) at(address string) context.Context {
	return client.WithNode(r.within(5*time.Minute), address)
}

// atAll targets machines by the metadata key nodes.
func (r *rig) atAll(addresses ...string) context.Context {
	targets := metadata.MD{"nodes": addresses}

	return metadata.NewOutgoingContext(r.within(5*time.Minute), targets)
}

func (r *rig) version(c *client.Client, address string) (string, error) {
	response, err := c.Version(r.at(address))
	if err != nil {
		return "", err
	}

	return response.GetMessages()[0].GetVersion().GetTag(), nil
}

func (r *rig) wantCode(what string, err error, want codes.Code, text string) {
	r.Helper()

	if code := client.StatusCode(err); code != want || err != nil && !strings.Contains(err.Error(), text) {
		r.Errorf("%s: got %v, want code %s with %q", what, err, want, text)
	}
}

func containerd() *common.ContainerdInstance {
	return &common.ContainerdInstance{
		Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}
}

// pull asks a machine to pull an image, and returns the name that came last.
func (r *rig) pull(c *client.Client, address, image string) (string, error) {
	stream, err := c.ImageClient.Pull(r.at(address), &machine.ImageServicePullRequest{Containerd: containerd(), ImageRef: image})
	if err != nil {
		return "", err
	}

	name := ""

	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return name, nil
		}

		if err != nil {
			return name, err
		}

		if response.GetName() != "" {
			name = response.GetName()
		}
	}
}

// install runs an installer and returns its exit code, or -1 if there is none.
func (r *rig) install(c *client.Client, address, image string) (int32, error) {
	stream, err := c.LifecycleClient.Upgrade(r.at(address), &machine.LifecycleServiceUpgradeRequest{
		Containerd: containerd(), Source: &machine.InstallArtifactsSource{ImageName: image},
	})
	if err != nil {
		return -1, err
	}

	exit := int32(-1)

	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return exit, nil
		}

		if err != nil {
			return exit, err
		}

		if code, last := response.GetProgress().GetResponse().(*machine.LifecycleServiceInstallProgress_ExitCode); last {
			exit = code.ExitCode
		}
	}
}

func (r *rig) bootID(c *client.Client, address string) (string, error) {
	reader, err := c.Read(r.at(address), "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}

	content, err := io.ReadAll(reader)

	return strings.TrimSpace(string(content)), errors.Join(err, reader.Close())
}

func (r *rig) hostname(c *client.Client) string {
	r.Helper()

	response, err := c.MachineClient.Hostname(r.within(time.Minute), &emptypb.Empty{})
	if err != nil {
		r.Fatal(err)
	}

	return response.GetMessages()[0].GetHostname()
}

// until waits for a condition of a machine in the model.
func (r *rig) until(node, what string, limit time.Duration, cond func(model.NodeState) bool) {
	r.Helper()

	deadline := time.Now().Add(limit)

	for {
		state, err := r.world.Node(node)
		if err != nil {
			r.Fatal(err)
		}

		if cond(state) {
			return
		}

		if time.Now().After(deadline) {
			r.Fatalf("%s: not %s within %s: %+v", node, what, limit, state)
		}

		time.Sleep(100 * time.Millisecond)
	}
}

func ready(state model.NodeState) bool {
	return state.Reachable && state.Stage == model.StageRunning && state.Ready && !state.UpgradePending
}

func down(state model.NodeState) bool { return !state.Up }
