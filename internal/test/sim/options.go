// SPDX-License-Identifier: MPL-2.0

// Package sim is a virtual Talos cluster that speaks the real protocols: the Talos API over mutual TLS, and
// Kubernetes through a real kube-apiserver and etcd, or a Kubernetes in memory. The command talossim runs it for
// people; tests start it in process.
package sim

import (
	"io"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Options describe a simulated cluster.
type Options struct {
	// ClusterName is the name of the admin context in the talosconfig.
	ClusterName string
	// ControlPlanes and Workers are numbers of machines.
	ControlPlanes, Workers int
	// Talos and Kubernetes are versions, with or without v.
	Talos, Kubernetes string
	// InMemory clusters have a Kubernetes in this process instead of the real one, which needs no programs and
	// starts at once, but has no custom resources and no management cluster.
	InMemory bool
	// Speed is how many simulated seconds pass in a real one; 60 when 0.
	Speed float64
	// Dir receives talosconfig, kubeconfig, history.jsonl and logs.
	Dir string
	// Seed decides identities and durations.
	Seed uint64
	// Schematic is the Image Factory schematic of all machines; empty for none.
	Schematic string
	// Extensions are the system extensions of all machines, instead of those of the schematic.
	Extensions []string
	// Platform is metal when empty.
	Platform string
	// UKI machines boot the UKI of what was installed; GrubUseUKICmdline makes GRUB take the kernel arguments from
	// there.
	UKI, GrubUseUKICmdline bool
	// SecureBoot machines boot with secure boot.
	SecureBoot bool
	// Pods is the number of workload pods, each covered by a budget.
	Pods int
	// Unpinned machine configurations leave the component images out.
	Unpinned bool
	// Documents spreads the machine configurations over separate documents, from Talos 1.14 on.
	Documents bool
	// ManyAddresses gives each machine one address from outside, which is named first and at which nothing answers,
	// and one of IPv6.
	ManyAddresses bool
	// DiscoveryOff clusters list no members.
	DiscoveryOff bool
	// ProxyDisabled clusters run no kube-proxy.
	ProxyDisabled bool
	// Disabled are components of control planes that are switched off: kube-controller-manager, kube-scheduler.
	Disabled []string
	// Repositories are those of components other than the defaults, by component; Images are whole references with
	// tag or digest.
	Repositories, Images map[string]string
	// CustomResources installs the custom resources of the operators that upgrade clusters in the simulated
	// cluster. Management starts a second API server, of a cluster without machines, which always has them.
	CustomResources, Management bool
	// Faults is the fault script at the start.
	Faults []model.Fault
	// Progress receives messages about what takes long at the first start; nil drops them.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	if o.Speed == 0 {
		o.Speed = 60
	}

	if o.ClusterName == "" {
		o.ClusterName = "talossim"
	}

	return o
}

// The names of the files in [Options.Dir] that others rely on.
const (
	TalosconfigFile = "talosconfig"
	KubeconfigFile  = "kubeconfig"
	HistoryFile     = "history.jsonl"
	// ManagementKubeconfigFile exists only with [Options.Management].
	ManagementKubeconfigFile = "management.kubeconfig"
)
