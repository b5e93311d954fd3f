// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Role is what a machine is in the cluster.
type Role string

// The roles, spelled as Talos spells machine types.
const (
	ControlPlane Role = "controlplane"
	Worker       Role = "worker"
)

// EmptySchematic is the Image Factory's schematic without any extension.
const EmptySchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// Options describe the cluster at the moment the simulation begins: every
// machine is up, healthy and confirmed on its version.
type Options struct {
	// ClusterName is also the name of the admin context; "talossim" when empty.
	ClusterName string
	// ControlPlanes and Workers are numbers of machines.
	ControlPlanes, Workers int
	// Talos and Kubernetes are versions, with or without v. An empty
	// Kubernetes version is what that Talos version installs by itself.
	Talos, Kubernetes string
	// TalosTag is what the machines call the version that they begin with, where that
	// is not v and the version.
	TalosTag string
	// Schematic is the Image Factory schematic all machines were installed
	// with; empty means the generic installer where one was published, that
	// is below Talos 1.14, and the empty schematic from there on.
	Schematic string
	// Platform is metal when empty.
	Platform string
	// UKI machines boot the UKI of what was installed, and take their kernel
	// arguments from it; those with SecureBoot do so always.
	UKI bool
	// GrubUseUKICmdline has the machine configurations say that GRUB takes them from
	// there too.
	GrubUseUKICmdline bool
	// IPv6 machines have addresses of IPv6 and no others.
	IPv6 bool
	// Silent machines that do not answer refuse nothing either: whoever calls them hears
	// nothing until he gives up.
	Silent bool
	// ManyAddresses gives machines three: one from outside, which discovery and
	// Kubernetes name first and where nothing gets through, and an inner one of each kind.
	ManyAddresses bool
	// ContainerdVolume gives the images a volume of their own below
	// /var/lib/containerd, as the volume CRI of Talos 1.14 can be.
	ContainerdVolume bool
	// SecureBoot machines refuse to start what is not signed for it.
	SecureBoot bool
	// Unpinned machine configurations name no component images: the kubelet
	// and the control plane follow Talos' own default at each boot.
	Unpinned bool
	// Documents are machine configurations as Talos generates them from 1.14 on,
	// with a document for each component; older versions do not read them. Real
	// ones always name the images: with Unpinned they are more lenient than that.
	Documents bool
	// DiscoveryOff clusters list no members.
	DiscoveryOff bool
	// ProxyDisabled clusters run no kube-proxy.
	ProxyDisabled bool
	// DisabledComponents are switched off everywhere: the scheduler, the
	// controller-manager, or both. Configurations name their images all the same.
	DisabledComponents []string
	// ComponentImages are repositories, by component, that replace the usual ones
	// where the configurations name an image.
	ComponentImages map[string]string
	// ConfiguredImages are images, by component, that the configurations name
	// whatever else is said here: with a tag, and with a digest if there is one.
	ConfiguredImages map[string]string
	// Seed decides identities and durations.
	Seed uint64
	// Faults is the first fault script.
	Faults []Fault
	// Clock is [RealClock] when nil.
	Clock Clock
	// Recorder receives the history; nil drops it.
	Recorder history.Recorder
}

func (o Options) withDefaults() (Options, error) {
	if o.ClusterName == "" {
		o.ClusterName = "talossim"
	}

	if o.Platform == "" {
		o.Platform = "metal"
	}

	if o.Clock == nil {
		o.Clock = RealClock{}
	}

	if o.Recorder == nil {
		o.Recorder = discard{}
	}

	if o.ControlPlanes < 1 || o.Workers < 0 {
		return o, fmt.Errorf("a cluster needs at least one control plane: got %d control planes and %d workers", o.ControlPlanes, o.Workers)
	}

	talos, err := parseVersion(o.Talos)
	if err != nil {
		return o, fmt.Errorf("talos version %q: %w", o.Talos, err)
	}

	o.Talos = talos.String()

	if o.Kubernetes == "" {
		o.Kubernetes = defaultKubernetes(o.Talos)
	}

	kubernetes, err := parseVersion(o.Kubernetes)
	if err != nil {
		return o, fmt.Errorf("kubernetes version %q: %w", o.Kubernetes, err)
	}

	o.Kubernetes = kubernetes.String()

	return o, o.checkComponents()
}

// checkComponents looks at what the options say about configurations.
func (o Options) checkComponents() error {
	if o.Documents && !AtLeast(o.Talos, 1, 14) {
		return fmt.Errorf("talos %s has no configuration in documents: that begins with 1.14", o.Talos)
	}

	for _, component := range o.DisabledComponents {
		if component != SchedulerName && component != ControllerManagerName {
			return fmt.Errorf("disabled component %q: want %s or %s", component, ControllerManagerName, SchedulerName)
		}
	}

	for component, repository := range o.ComponentImages {
		_, tag := splitImage(repository)
		if !slices.Contains(componentNames(), component) || repository == "" || tag != "" || strings.Contains(repository, "@") {
			return fmt.Errorf("component image %s=%q: want a component and a repository without a tag", component, repository)
		}
	}

	for component, image := range o.ConfiguredImages {
		known := component == CoreDNSName || slices.Contains(componentNames(), component)
		if _, tag := splitImage(image); !known || tag == "" {
			return fmt.Errorf("configured image %s=%q: want a component and an image with a tag", component, image)
		}
	}

	return nil
}

type discard struct{}

func (discard) Record(string, history.Kind, map[string]string) {}

// Kubernetes is what a machine does to its own Node object during a legacy
// upgrade. A face provides it; without one these steps do nothing.
type Kubernetes interface {
	// Cordon with on marks the node unschedulable and remembers, as Talos
	// does with the annotation talos.dev/cordoned, that the machine did it;
	// a node that is unschedulable already is left as it is. Without on it
	// lifts the machine's own cordon and no other.
	Cordon(ctx context.Context, node string, on bool) error
	// Drain evicts the node's pods and gives up after timeout.
	Drain(ctx context.Context, node string, timeout time.Duration) error
}

type noKubernetes struct{}

func (noKubernetes) Cordon(context.Context, string, bool) error         { return nil }
func (noKubernetes) Drain(context.Context, string, time.Duration) error { return nil }

var errStopped = errors.New("the simulation was stopped")
