// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/kube"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// Simulator is a running simulated cluster.
type Simulator struct {
	// World is the model behind it, for tests that read or change it directly.
	World *model.World

	dir    string
	clock  *model.ScaledClock
	file   *os.File
	writer *history.Writer
	// programs are the programs of the real Kubernetes.
	programs kube.Binaries
	kube     kubernetes
	// management is nil if there is no such cluster.
	management *kube.Management
	wire       *wire.Server
	control    *control
}

// Start brings a simulated cluster up. When it returns, the talosconfig and the kubeconfig in the directory work.
// After an error nothing runs.
func Start(ctx context.Context, options Options) (*Simulator, error) {
	options = options.withDefaults()

	var programs kube.Binaries

	if options.InMemory {
		if err := errInMemory(options); err != nil {
			return nil, err
		}
	} else {
		found, err := toolchain.Kubernetes(ctx, toolchain.Options{Progress: options.Progress})
		if err != nil {
			return nil, err
		}

		programs = kube.Binaries{APIServer: found.APIServer, Etcd: found.Etcd, ControllerManager: found.ControllerManager}
	}

	if err := os.MkdirAll(options.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("creating the simulator's directory: %w", err)
	}

	s := &Simulator{dir: options.Dir, programs: programs, clock: model.NewScaledClock(options.Speed)}
	if err := s.start(ctx, options); err != nil {
		return nil, errors.Join(err, s.Stop())
	}

	return s, nil
}

func (s *Simulator) start(ctx context.Context, options Options) error {
	var err error

	s.file, err = os.Create(filepath.Join(s.dir, HistoryFile))
	if err != nil {
		return fmt.Errorf("creating the history: %w", err)
	}

	begun := s.clock.Now()
	s.writer = history.NewWriter(s.file, func() time.Duration { return s.clock.Now().Sub(begun) })

	s.World, err = model.New(model.Options{
		ClusterName: options.ClusterName, ControlPlanes: options.ControlPlanes, Workers: options.Workers,
		Talos: options.Talos, Kubernetes: options.Kubernetes, Schematic: options.Schematic, Extensions: options.Extensions, Platform: options.Platform,
		UKI: options.UKI, GrubUseUKICmdline: options.GrubUseUKICmdline,
		SecureBoot: options.SecureBoot, Unpinned: options.Unpinned, Documents: options.Documents,
		ManyAddresses: options.ManyAddresses, DiscoveryOff: options.DiscoveryOff, ProxyDisabled: options.ProxyDisabled, DisabledComponents: options.Disabled, ComponentImages: options.Repositories, ConfiguredImages: options.Images,
		Seed: options.Seed, Faults: options.Faults,
		Clock: s.clock, Recorder: s.writer,
	})
	if err != nil {
		return err
	}

	if err := s.startServers(ctx, options); err != nil {
		return err
	}

	s.wire, err = wire.New(wire.Options{World: s.World, Kubeconfig: s.kube.Kubeconfig, Sync: s.Sync})
	if err != nil {
		return err
	}

	if err := s.wire.Start(ctx); err != nil {
		return err
	}

	if s.control, err = startControl(s); err != nil {
		return err
	}

	return s.writeConfigs()
}

// startServers starts the API servers, each of which takes seconds, at the same time.
func (s *Simulator) startServers(ctx context.Context, options Options) error {
	var (
		group  sync.WaitGroup
		failed error
	)

	if options.Management {
		group.Go(func() { failed = s.startManagement(ctx) })
	}

	err := s.startKubernetes(ctx, options)

	group.Wait()

	if err := errors.Join(err, failed); err != nil {
		return err
	}

	if server, is := s.kube.(*kube.Server); is && s.management != nil {
		server.Follow(s.management.Sync)
	}

	return nil
}

func (s *Simulator) startKubernetes(ctx context.Context, options Options) error {
	if options.InMemory {
		made, err := newMemory(s.World, options.Pods)
		if err != nil {
			return err
		}

		s.kube = made

		return nil
	}

	server, err := kube.New(kube.Options{
		World: kube.FromModel(s.World), Clock: s.clock, Recorder: s.writer, Dir: s.dir, Pods: options.Pods, Seed: options.Seed,
		CustomResources: options.CustomResources, Binaries: s.programs,
	})
	if err != nil {
		return err
	}

	if err := server.Start(ctx); err != nil {
		return err
	}

	s.kube = server
	s.World.SetKubernetes(server)

	return nil
}

// writeConfigs writes the credentials, which only the owner can read.
func (s *Simulator) writeConfigs() error {
	talosconfig, err := s.wire.Talosconfig()
	if err != nil {
		return err
	}

	kubeconfig, err := s.kube.Kubeconfig()
	if err != nil {
		return err
	}

	for name, content := range map[string][]byte{TalosconfigFile: talosconfig, KubeconfigFile: kubeconfig} {
		if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing the credentials: %w", err)
		}
	}

	return nil
}

// Dir returns the directory with talosconfig, kubeconfig and history.
func (s *Simulator) Dir() string { return s.dir }

// Talosconfig returns the path of the talosconfig.
func (s *Simulator) Talosconfig() string { return filepath.Join(s.dir, TalosconfigFile) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Simulator) Kubeconfig() string { return filepath.Join(s.dir, KubeconfigFile) }

// Clock returns the clock of the simulated time.
func (s *Simulator) Clock() *model.ScaledClock { return s.clock }

// Answered returns how many bytes the API server has sent to clients so far.
func (s *Simulator) Answered() int64 { return s.kube.Answered() }

// OnEvent calls fn with every further event; see [history.Writer.OnEvent].
func (s *Simulator) OnEvent(fn func(history.Event)) { s.writer.OnEvent(fn) }

// AddNode lets a machine join and returns its name.
func (s *Simulator) AddNode(options model.NodeOptions) (string, error) {
	return s.World.AddNode(options)
}

// SetFaults replaces the fault script; what lasted only until then ends.
func (s *Simulator) SetFaults(faults []model.Fault) { s.World.SetFaults(faults) }

// SetImage changes the image of one component in the configuration of a node, as a person with talosctl does.
func (s *Simulator) SetImage(node, component, image string) error {
	return s.World.SetImage(node, component, image)
}

// Verdict judges what happened so far, under the policy that was in force.
func (s *Simulator) Verdict(ctx context.Context, policy ...checker.Option) (Verdict, error) {
	// Completed requests are in the history once their log is read.
	if err := s.Sync(ctx); err != nil {
		return Verdict{}, err
	}

	return ReadVerdict(s.dir, policy...)
}

// stopPatience bounds the end of the Kubernetes processes.
const stopPatience = 20 * time.Second

// Stop ends everything that Start began. It may be called on a simulator that was only partly started.
func (s *Simulator) Stop() error {
	var failed error

	if s.control != nil {
		failed = errors.Join(failed, s.control.stop())
	}

	if s.wire != nil {
		s.wire.Stop()
	}

	// The machines stop before the API server: what they still write must end first.
	if s.World != nil {
		s.World.Stop()
	}

	if s.kube != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
		failed = errors.Join(failed, s.kube.Stop(ctx))

		cancel()
	}

	failed = errors.Join(failed, s.stopManagement())

	if s.writer != nil {
		failed = errors.Join(failed, s.writer.Err())
	}

	if s.file != nil {
		failed = errors.Join(failed, s.file.Close())
	}

	return failed
}
