// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/contract"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// The ports do what the adapter does over a real API server.
func TestContract_HoldsOverThePorts(t *testing.T) {
	for _, clause := range contract.Cases() {
		t.Run(clause.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kept, err := ports.New(model.Options{ControlPlanes: 3, Workers: 2, Talos: "1.13.2", Kubernetes: "1.35.2", Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer kept.Stop()

				// Not every firmware tells a UUID.
				if err := kept.World().SetUUID("worker-1", ""); err != nil {
					t.Fatal(err)
				}

				clause.Run(t, contractFixture{kept})
			})
		})
	}
}

// So they do where machines are asked, which the end-to-end run holds the adapter
// to.
func TestContract_OfTalosHoldsOverThePorts(t *testing.T) {
	for _, talos := range []string{"1.12.6", "1.13.2"} {
		for _, clause := range contract.TalosCases() {
			t.Run(talos+": "+clause.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					kept, err := ports.New(model.Options{ControlPlanes: 3, Workers: 2, Talos: talos, Kubernetes: "1.34.2", Seed: 1})
					if err != nil {
						t.Fatal(err)
					}
					defer kept.Stop()

					clause.Run(t, contractFixture{kept})
				})
			})
		}
	}
}

type contractFixture struct{ cluster *ports.Cluster }

func (f contractFixture) API() contract.API            { return f.cluster.Client("run-1") }
func (f contractFixture) Talos() cluster.Talos         { return f.cluster.Client("run-1") }
func (f contractFixture) Machines() []contract.Machine { return contract.FromModel(f.cluster.World()) }
func (f contractFixture) ClusterID() string            { return f.cluster.World().ClusterID() }

func (f contractFixture) CordonAsPerson(t *testing.T, node string, on bool) {
	t.Helper()

	if err := f.cluster.CordonAsPerson(node, on); err != nil {
		t.Fatal(err)
	}
}

func (f contractFixture) Pod(_ *testing.T, app, node string) cluster.Pod {
	name := f.cluster.StartPod(ports.PodSpec{App: app, Node: node, Unmanaged: true})

	return cluster.Pod{Namespace: "workload", Name: name, UID: "uid-" + name}
}

func (f contractFixture) Budget(_ *testing.T, app, name string, minAvailable int) {
	f.cluster.AddBudget(ports.Budget{App: app, Name: name, MinAvailable: minAvailable})
}

func (f contractFixture) DropLease(t *testing.T) {
	t.Helper()

	if err := f.cluster.DropLease(f.cluster.Lease().ResourceVersion); err != nil {
		t.Fatal(err)
	}
}

func (f contractFixture) DropJournal(t *testing.T) {
	t.Helper()

	if err := f.cluster.DropJournal("other", f.cluster.Journal().ResourceVersion); err != nil {
		t.Fatal(err)
	}
}

func (f contractFixture) Eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()

	ticker := time.NewTicker(97 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(10 * time.Minute); ; <-ticker.C {
		held, err := holds()
		if err != nil {
			t.Fatal(err)
		}

		if held {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
