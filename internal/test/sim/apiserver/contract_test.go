// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/contract"
)

// The adapter over the API server in memory keeps the contract.
func TestContract_HoldsInMemory(t *testing.T) {
	for _, clause := range contract.Cases() {
		t.Run(clause.Name, func(t *testing.T) {
			inBubble(t, apiserver.Options{}, func(r *rig) {
				// Not every firmware reports a UUID.
				if err := r.cluster.World().SetUUID("worker-1", ""); err != nil {
					r.T.Fatal(err)
				}

				clause.Run(r.T, fixture{r})
			})
		})
	}
}

// The API server in memory answers as the real one does.
func TestContract_OfTheWireHoldsInMemory(t *testing.T) {
	for _, clause := range contract.WireCases() {
		t.Run(clause.Name, func(t *testing.T) {
			inBubble(t, apiserver.Options{}, func(r *rig) { clause.Run(r.T, fixture{r}) })
		})
	}
}

type fixture struct{ rig *rig }

func (f fixture) API() contract.API            { return f.rig.api }
func (f fixture) Wire() kubernetes.Interface   { return f.rig.plain() }
func (f fixture) Machines() []contract.Machine { return contract.FromModel(f.rig.cluster.World()) }
func (f fixture) ClusterID() string            { return f.rig.cluster.World().ClusterID() }

func (f fixture) CordonAsPerson(t *testing.T, node string, on bool) {
	t.Helper()

	if err := f.rig.cluster.CordonAsPerson(node, on); err != nil {
		t.Fatal(err)
	}
}

func (f fixture) Pod(_ *testing.T, app, node string) cluster.Pod {
	name := f.rig.cluster.StartPod(apiserver.PodSpec{App: app, Node: node, Unmanaged: true})

	return cluster.Pod{Namespace: "workload", Name: name, UID: "uid-" + name}
}

func (f fixture) Budget(_ *testing.T, app, name string, minAvailable int) {
	f.rig.cluster.AddBudget(apiserver.Budget{App: app, Name: name, MinAvailable: minAvailable})
}

func (f fixture) DropLease(*testing.T) {
	f.rig.cluster.DeleteLeaseAsPerson()
}

func (f fixture) DropJournal(*testing.T) {
	f.rig.cluster.DeleteJournalAsPerson()
}

func (f fixture) Eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()

	f.rig.until(what, func() bool {
		held, err := holds()
		if err != nil {
			t.Fatal(err)
		}

		return held
	})
}
