// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

const (
	schematic  = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	nextImage  = "factory.talos.dev/metal-installer/" + schematic + ":v1.13.4"
	kubeconfig = "kubeconfig of the simulation"

	cp0, cp1, worker0 = "10.5.0.2", "10.5.0.3", "10.5.0.5"
)

// rig is a simulated cluster of three control planes and one worker that
// speaks the real protocol.
type rig struct {
	*testing.T
	world  *model.World
	server *wire.Server
	log    *record
	// meanwhile runs before a call reaches an endpoint; nil for nothing.
	meanwhile atomic.Pointer[func(wire.Call)]
}

// record keeps the history of a simulation.
type record struct {
	mutex  sync.Mutex
	events []history.Event
}

func (r *record) Record(node string, kind history.Kind, detail map[string]string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	r.events = append(r.events, history.Event{Node: node, Kind: kind, Detail: detail})
}

// soFar returns the history once everything in the bubble is idle: the machine records that a call ended, and learns
// later than the caller that it was canceled.
func (r *record) soFar() []history.Event {
	synctest.Wait()

	r.mutex.Lock()
	defer r.mutex.Unlock()

	return slices.Clone(r.events)
}

// calls returns the methods called on a node, without their service, by how often.
func (r *record) calls(node string) map[string]int {
	calls := map[string]int{}

	for _, event := range r.soFar() {
		if event.Node == node && event.Kind == history.KindRPC {
			calls[event.Detail["method"]]++
		}
	}

	return calls
}

func (r *record) count(node string, kind history.Kind) int {
	count := 0

	for _, event := range r.soFar() {
		if event.Node == node && event.Kind == kind {
			count++
		}
	}

	return count
}

// inBubble runs a test against a cluster in memory and in virtual time.
func inBubble(t *testing.T, options model.Options, test func(*rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, log: &record{}}

		options.Recorder = r.log
		options.ControlPlanes, options.Workers = 3, 1

		if options.Talos == "" {
			options.Talos = "1.13.2"
		}

		if options.Schematic == "" {
			options.Schematic = schematic
		}

		var err error

		if r.world, err = model.New(options); err != nil {
			t.Fatal(err)
		}
		defer r.world.Stop()

		r.server, err = wire.New(wire.Options{
			World: r.world, InMemory: true, Kubeconfig: func() ([]byte, error) { return []byte(kubeconfig), nil },
			Intercept: func(_ context.Context, call wire.Call) wire.Strike {
				if meanwhile := r.meanwhile.Load(); meanwhile != nil {
					(*meanwhile)(call)
				}

				return wire.Strike{}
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
	})
}

// client connects with a context of the talosconfig, named by its suffix.
func (r *rig) client(suffix string) *talosapi.Client {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, r.world.ClusterName()+suffix)
	if err != nil {
		r.Fatal(err)
	}

	made, err := talosapi.New(config, talosapi.Options{DialContext: r.server.Dialer(), UserAgent: "test"})
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

func (r *rig) machine(c *talosapi.Client, address string) cluster.Machine {
	r.Helper()

	machine, err := c.Machine(r.Context(), address, nil, cluster.Everything)
	if err != nil {
		r.Fatal(err)
	}

	return machine
}

// until waits for a condition of a machine in the model.
func (r *rig) until(node, what string, cond func(model.NodeState) bool) {
	r.Helper()

	const limit = 10 * time.Minute

	ticker := time.NewTicker(97 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(limit); ; <-ticker.C {
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
	}
}

func isUp(state model.NodeState) bool {
	return state.Reachable && state.Stage == model.StageRunning && state.Ready && !state.UpgradePending
}

func isDown(state model.NodeState) bool { return !state.Up }

// through returns a client with some of the endpoints only.
func (r *rig) through(endpoints ...string) *talosapi.Client {
	r.Helper()

	return r.over(endpoints, func(string) bool { return true })
}

// changed returns the credentials of the talosconfig with a changed context.
func (r *rig) changed(change func(*clientconfig.Context)) talosapi.Config {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	contexts, err := clientconfig.FromBytes(text)
	if err != nil {
		r.Fatal(err)
	}

	change(contexts.Contexts[r.world.ClusterName()])

	if text, err = contexts.Bytes(); err != nil {
		r.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, r.world.ClusterName())
	if err != nil {
		r.Fatal(err)
	}

	return config
}

// over returns a client with some of the endpoints only, that reaches some addresses ("host:port").
func (r *rig) over(endpoints []string, reaches func(address string) bool) *talosapi.Client {
	r.Helper()

	config := r.changed(func(context *clientconfig.Context) { context.Endpoints = endpoints })

	made, err := talosapi.New(config, talosapi.Options{DialContext: func(ctx context.Context, address string) (net.Conn, error) {
		if !reaches(address) {
			return nil, errors.New("no route to host")
		}

		return r.server.Dialer()(ctx, address)
	}})
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

// install installs the next system on a node and reboots into it.
func (r *rig) install(c *talosapi.Client, address string) {
	r.Helper()
	r.prepare(c, address)

	if err := c.Reboot(r.Context(), address, cluster.RebootDefault); err != nil {
		r.Fatal(err)
	}
}

// prepare installs the next system on a node.
func (r *rig) prepare(c *talosapi.Client, address string) {
	r.Helper()

	if err := c.PullToInstall(r.Context(), address, nextImage); err != nil {
		r.Fatal(err)
	}

	if done, err := c.Install(r.Context(), address, nextImage); err != nil || done.Exit != 0 {
		r.Fatalf("install: %+v, %v", done, err)
	}
}

// answers polls a node until it answers, and returns when that was. Until then, every error must be that it is
// unreachable.
func (r *rig) answers(c *talosapi.Client, address string, most time.Duration, seen func(cluster.Machine) bool) time.Time {
	r.Helper()

	ticker := time.NewTicker(503 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(most); time.Now().Before(deadline); <-ticker.C {
		machine, err := c.Machine(r.Context(), address, nil, cluster.Everything)

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

// booted returns a function that reports whether a machine has settled on another boot than before.
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

// refuse returns a dialler that must not be used.
func refuse(t *testing.T) func(context.Context, string) (net.Conn, error) {
	t.Helper()

	return func(_ context.Context, address string) (net.Conn, error) {
		t.Errorf("%s was dialled", address)

		return nil, net.ErrClosed
	}
}

// material is base64 of PEM, as a talosconfig holds it.
type material struct{ ca, crt, key string }

// mint makes a CA and a client certificate with the given roles.
func mint(t *testing.T, notAfter time.Time, roles ...string) material {
	t.Helper()

	caKey, ca := issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, NotAfter: notAfter,
	}, nil, nil)

	authority, err := x509.ParseCertificate(ca)
	if err != nil {
		t.Fatal(err)
	}

	key, leaf := issue(t, &x509.Certificate{Subject: pkix.Name{Organization: roles}, NotAfter: notAfter}, authority, caKey)

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	return material{ca: armour("CERTIFICATE", ca), crt: armour("CERTIFICATE", leaf), key: armour("PRIVATE KEY", der)}
}

func issue(t *testing.T, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template.SerialNumber = big.NewInt(1)
	template.NotBefore = time.Now().Add(-time.Hour)

	if parent == nil {
		parent, parentKey = template, key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}

	return key, der
}

func armour(kind string, der []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
