// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// clockedNode is an endpoint whose certificate and clock a test sets.
type clockedNode struct {
	machineapi.UnimplementedMachineServiceServer

	*testing.T

	caKey     *ecdsa.PrivateKey
	authority *x509.Certificate

	mu       sync.Mutex
	listener *pipe.Listener
}

func newClockedNode(t *testing.T) *clockedNode {
	t.Helper()

	key, der := issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(24 * time.Hour),
	}, nil, nil)

	authority, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return &clockedNode{T: t, caKey: key, authority: authority}
}

func (n *clockedNode) Reboot(context.Context, *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	return &machineapi.RebootResponse{}, nil
}

// serve answers with a certificate that is valid in that time, until the returned function is called.
func (n *clockedNode) serve(from, to time.Time) (stop func()) {
	n.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		n.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.ParseIP(cp0)}}

	der, err := x509.CreateCertificate(rand.Reader, template, n.authority, &key.PublicKey, n.caKey)
	if err != nil {
		n.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(n.authority)

	listener := pipe.Listen(1 << 16)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12,
	})))
	machineapi.RegisterMachineServiceServer(server, n)

	served := make(chan error, 1)

	go func() { served <- server.Serve(listener) }()

	n.mu.Lock()
	n.listener = listener
	n.mu.Unlock()

	return func() {
		server.Stop()

		if err := <-served; err != nil {
			n.Error(err)
		}
	}
}

// client connects to whatever serves now, with a certificate that is valid until
// then.
func (n *clockedNode) client(until time.Time) *talosapi.Client {
	n.Helper()

	key, leaf := issue(n.T, &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"os:admin"}}, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, n.authority, n.caKey)

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		n.Fatal(err)
	}

	config, err := talosapi.ConfigFromParts([]string{cp0}, armour("CERTIFICATE", n.authority.Raw), armour("CERTIFICATE", leaf), armour("PRIVATE KEY", der))
	if err != nil {
		n.Fatal(err)
	}

	made, err := talosapi.New(config, talosapi.Options{DialContext: func(ctx context.Context, _ string) (net.Conn, error) {
		n.mu.Lock()
		listener := n.listener
		n.mu.Unlock()

		return listener.DialContext(ctx)
	}})
	if err != nil {
		n.Fatal(err)
	}

	n.Cleanup(func() {
		if err := made.Close(); err != nil {
			n.Error(err)
		}
	})

	return made
}

// failsWith reboots a node, and fails the test unless that ends at once, with nothing done, for the given reason.
func (n *clockedNode) failsWith(c *talosapi.Client, want error, says ...string) {
	n.Helper()

	started := time.Now()

	err := c.Reboot(n.Context(), cp0, cluster.RebootDefault)
	if !errors.Is(err, want) || errors.Is(err, cluster.ErrOutcomeUnknown) || cluster.Heals(err) != cluster.Heals(want) {
		n.Errorf("%v, want %q", err, want)
	}

	for _, part := range says {
		if err != nil && !strings.Contains(err.Error(), part) {
			n.Errorf("%v, want it to say %q", err, part)
		}
	}

	if took := time.Since(started); took > 10*time.Second {
		n.Errorf("it took %s", took)
	}
}

// All of these have the code of a node that reboots, and none of them heals.
func TestCatalogue27_CertificateExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, now := newClockedNode(t), time.Now()

		stop := node.serve(now.Add(-time.Hour), now.Add(time.Hour))
		node.failsWith(node.client(now.Add(-time.Minute)), cluster.ErrCredentials, "the client certificate expired on "+now.Add(-time.Minute).UTC().Format(time.RFC3339))

		foreign := newClockedNode(t)
		foreign.listener = node.listener
		foreign.failsWith(foreign.client(now.Add(time.Hour)), cluster.ErrCredentials, "belongs to another cluster or is out of date")
		stop()

		stop = node.serve(now.Add(-2*time.Hour), now.Add(-time.Hour))
		node.failsWith(node.client(now.Add(time.Hour)), cluster.ErrCredentials, "certificate has expired or is not yet valid", "clock")
		stop()
	})
}

// A wrong clock makes a valid certificate look expired. If the credentials were never accepted, that fails at once
// and the error names clocks. If they were, it is the clock of a node that has just booted, and heals.
func TestCatalogue28_ClockSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, now := newClockedNode(t), time.Now()
		valid := now.Add(time.Hour)

		for name, skewed := range map[string]func() (stop func()){
			"the node issued its own in our future":       func() func() { return node.serve(now.Add(30*time.Minute), valid) },
			"the node issued its own in our distant past": func() func() { return node.serve(now.Add(-48*time.Hour), now.Add(-24*time.Hour)) },
		} {
			stop := skewed()
			node.failsWith(node.client(valid), cluster.ErrCredentials, "clock")
			stop()

			stop = node.serve(now.Add(-time.Hour), valid)
			known := node.client(valid)

			if err := known.Reboot(t.Context(), cp0, cluster.RebootDefault); err != nil {
				t.Fatalf("%s: before: %v", name, err)
			}

			stop()
			// Wait for what the connection still reports about that.
			synctest.Wait()

			stop = skewed()
			node.failsWith(known, cluster.ErrUnreachable, "clock")
			stop()

			stop = node.serve(now.Add(-time.Hour), valid)

			// The connection is tried again after a pause of its own.
			time.Sleep(3 * time.Second)

			if err := known.Reboot(t.Context(), cp0, cluster.RebootDefault); err != nil {
				t.Errorf("%s: with its clock right: %v", name, err)
			}

			stop()
		}
	})
}

// A proxy that could not reach a node does not try again for up to 15 s, during which it keeps saying that the node
// is down.
func TestCatalogue03_EndpointStillBacksOff(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.through(cp0)
		before := r.machine(c, worker0)
		back := make(chan time.Time, 1)

		r.install(c, worker0)
		r.until("worker-0", "down", isDown)

		go func() {
			r.until("worker-0", "reachable", func(state model.NodeState) bool { return state.Reachable })

			back <- time.Now()
		}()

		seen := r.answers(c, worker0, 5*time.Minute, func(now cluster.Machine) bool { return now.BootID != before.BootID })

		if late := seen.Sub(<-back); late <= 0 || late > 16*time.Second {
			r.Errorf("it was seen %s after it was back, want some time, and no more than the pause", late)
		}
	})
}

// A control plane answers before its etcd has caught up, and says so.
func TestCatalogue17_ControlPlaneAnswersBeforeItsMember(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")
		before := r.machine(c, cp1)

		r.install(c, cp1)
		r.until("cp-1", "down", isDown)
		r.until("cp-1", "up without etcd", func(state model.NodeState) bool {
			return state.Reachable && state.BootID != before.BootID && !state.EtcdServed
		})

		if machine := r.machine(c, cp1); machine.Settled() || !strings.Contains(strings.Join(machine.Unmet, "; "), "etcd not healthy") {
			r.Errorf("while its member is away: %+v", machine)
		}

		r.answers(c, cp1, 5*time.Minute, booted(before))

		if view, err := c.Etcd(r.Context(), cp1, true); err != nil || view.Status.Leader == 0 {
			r.Errorf("in the end: %+v, %v", view, err)
		}
	})
}

// A node that never returns stays unreachable, which each look reports within its own deadline.
func TestCatalogue18_NodeNeverReturns(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		r.fault("worker-0", model.StepBoot, model.EffectNeverReturns)
		r.install(c, worker0)
		r.until("worker-0", "down", isDown)

		for range 5 {
			started := time.Now()

			if _, err := c.Machine(r.Context(), worker0, nil, cluster.Everything); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
				r.Errorf("%v, want it unreachable", err)
			}

			if took := time.Since(started); took > 20*time.Second {
				r.Errorf("a look took %s", took)
			}

			pause := time.NewTimer(5 * time.Minute)
			<-pause.C
		}
	})
}

// A fallback is another boot with the old version, without any message about it.
func TestCatalogue19_FallbackIsAnotherBootOfTheOldSystem(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")
		before := r.machine(c, worker0)

		r.fault("worker-0", model.StepBoot, model.EffectFallback)
		r.install(c, worker0)
		r.until("worker-0", "down", isDown)
		r.answers(c, worker0, 10*time.Minute, booted(before))

		if after := r.machine(c, worker0); !after.Talos.Equal(before.Talos) || after.Schematic != before.Schematic || after.UpgradePending {
			r.Errorf("afterwards: %+v", after)
		}
	})
}

// If the node that is the only endpoint reboots, nothing answers until it is back. If there are others, they take
// over at once.
func TestCatalogue23_EndpointIsTheNodeThatReboots(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.through(cp0)
		before := r.machine(c, cp0)

		r.install(c, cp0)
		r.until("cp-0", "down", isDown)

		if _, err := c.Kubeconfig(r.Context()); !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("kubeconfig: %v, want it unreachable", err)
		}

		r.until("cp-0", "reachable", func(state model.NodeState) bool { return state.Reachable })

		// With the connection back-off of gRPC it would take up to two minutes.
		back := time.Now()
		if late := r.answers(c, cp0, time.Minute, func(now cluster.Machine) bool { return now.BootID != before.BootID }).Sub(back); late > 5*time.Second {
			r.Errorf("it was seen %s after it was back", late)
		}
	})

	inBubble(t, model.Options{}, func(r *rig) {
		c := r.through(cp0, cp1)

		r.machine(c, cp0)
		r.install(c, cp0)
		r.until("cp-0", "down", isDown)

		started := time.Now()
		r.machine(c, worker0)

		if took := time.Since(started); took > 2*time.Second {
			r.Errorf("it took %s to go another way", took)
		}
	})
}

// An installer goes on without us. Another call is refused because one runs, and it is never run twice.
func TestCatalogue25_InstallerRunsOnWithoutUs(t *testing.T) {
	for _, effect := range []model.Effect{model.EffectConnectionLostEarly, model.EffectConnectionLost} {
		inBubble(t, model.Options{}, func(r *rig) {
			c := r.client("")

			if err := c.PullToInstall(r.Context(), worker0, nextImage); err != nil {
				r.Fatal(err)
			}

			r.fault("worker-0", model.StepInstall, effect)

			_, err := c.Install(r.Context(), worker0, nextImage)
			r.unknown(string(effect), err)

			if effect == model.EffectConnectionLostEarly {
				if _, err := c.Install(r.Context(), worker0, nextImage); !errors.Is(err, cluster.ErrBusy) {
					r.Errorf("again: %v, want it busy", err)
				}
			}

			r.idle(c, worker0)

			if machine := r.machine(c, worker0); machine.Talos.String() != "1.13.2" {
				r.Errorf("the version changed to %s without a boot", machine.Talos)
			}

			if count := r.log.count("worker-0", history.KindInstall); count != 1 {
				r.Errorf("%d installs, want one", count)
			}
		})
	}
}

// Nothing that a node pulled before its last boot is used for an install: if the node lost its power, files may be
// missing on its disk, however often they are downloaded there.
func TestCatalogue25_WhatIsFromBeforeTheBootIsPulledAnew(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		if err := c.Pull(r.Context(), worker0, nextImage, cluster.LifecycleAPI); err != nil {
			r.Fatal(err)
		}

		pull := func() time.Duration {
			begun := time.Now()
			if err := c.PullToInstall(r.Context(), worker0, nextImage); err != nil {
				r.Fatal(err)
			}

			return time.Since(begun)
		}

		pull()
		r.fault("worker-0", model.StepInstall, model.EffectPowerLost)

		_, err := c.Install(r.Context(), worker0, nextImage)
		r.unknown("power lost", err)
		r.until("worker-0", "down", isDown)
		r.until("worker-0", "back", isUp)

		if _, err := c.Install(r.Context(), worker0, nextImage); !errors.Is(err, cluster.ErrNotPulled) || !errors.Is(err, cluster.ErrRefused) {
			r.Errorf("the install ended with %v, want that the image is not there", err)
		}

		// A download takes half a minute here.
		const looked = 10 * time.Second

		if took := pull(); took < looked {
			r.Errorf("it was not downloaded: %s", took)
		}

		if took := pull(); took > looked {
			r.Errorf("it was downloaded once more: %s", took)
		}

		if done, err := c.Install(r.Context(), worker0, nextImage); err != nil || done.Exit != 0 {
			r.Errorf("the installer ended with %+v, %v", done, err)
		}
	})
}

// A node goes on with what it has begun in the background.
func TestCatalogue26_NodeGoesOnWithoutTheCaller(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.12.6"}, func(r *rig) {
		c := r.client("")
		ctx, cancel := context.WithCancel(r.Context())
		defer r.world.OnChange(func(node string) {
			if state, err := r.world.Node(node); err == nil && state.Stage == model.StageUpgrading {
				time.AfterFunc(time.Second, cancel)
			}
		})()
		defer cancel()

		_, err := c.Upgrade(ctx, worker0, nextImage, cluster.RebootDefault, nil)

		if !errors.Is(err, cluster.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			r.Errorf("legacy upgrade: %v, want the outcome to be unknown, and that it was cancelled", err)
		}

		r.until("worker-0", "upgraded", func(state model.NodeState) bool { return isUp(state) && state.Talos == "1.13.4" })
	})
}

// An operator may reboot and pull, and nothing else that an upgrade needs.
func TestCatalogue29_OperatorAndReader(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		operator, reader := r.client(wire.ContextOperator), r.client(wire.ContextReader)

		if machine := r.machine(operator, worker0); machine.BootID != "" || machine.Config != nil || machine.Talos.IsZero() {
			r.Errorf("an operator reads %+v", machine)
		}

		if err := operator.PullToInstall(r.Context(), worker0, nextImage); err != nil {
			r.Errorf("an operator pulls: %v", err)
		}

		denied := map[string]error{
			"reboot by a reader": reader.Reboot(r.Context(), worker0, cluster.RebootDefault),
			"pull by a reader":   reader.PullToInstall(r.Context(), worker0, nextImage),
		}
		_, denied["install by an operator"] = operator.Install(r.Context(), worker0, nextImage)
		denied["configuration by an operator"] = operator.Configure(r.Context(), worker0, toNewKubelet())

		for what, err := range denied {
			if !errors.Is(err, cluster.ErrDenied) || cluster.Heals(err) || errors.Is(err, cluster.ErrOutcomeUnknown) {
				r.Errorf("%s: %v, want it denied", what, err)
			}
		}

		if err := operator.Reboot(r.Context(), worker0, cluster.RebootDefault); err != nil {
			r.Errorf("an operator reboots: %v", err)
		}

		r.until("worker-0", "down", isDown)
	})
}

// A configuration that somebody else overwrites is noticed by reading it again.
func TestCatalogue34_ConfigurationWriteRace(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		r.fault("worker-0", model.StepApply, model.EffectOverwritten)

		if err := c.Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), worker0) {
			r.Errorf("%v, want a conflict on %s", err, worker0)
		}

		if err := c.Configure(r.Context(), worker0, toNewKubelet()); err != nil || !strings.Contains(r.config("worker-0"), newKubelet) {
			r.Errorf("once more: %v", err)
		}
	})
}
