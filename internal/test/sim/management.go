// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/kube"
)

// managementDir is where the management cluster keeps its data, below the directory of the simulator.
const managementDir = "management"

// errNoManagement is returned if there is no management cluster.
func errNoManagement() error {
	return errors.New("there is no simulated management cluster: start the simulator with Options.Management")
}

// startManagement sets the server of the simulator only once it runs.
func (s *Simulator) startManagement(ctx context.Context) error {
	server, err := kube.NewManagement(kube.ManagementOptions{
		Recorder: s.writer, Dir: filepath.Join(s.dir, managementDir), Binaries: s.programs,
	})
	if err != nil {
		return err
	}

	if err := server.Start(ctx); err != nil {
		return err
	}

	s.management = server

	kubeconfig, err := server.Kubeconfig()
	if err != nil {
		return err
	}

	if err := os.WriteFile(s.ManagementKubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("writing the credentials of the management cluster: %w", err)
	}

	return nil
}

func (s *Simulator) stopManagement() error {
	if s.management == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()

	return s.management.Stop(ctx)
}

// ManagementKubeconfig returns the path of the kubeconfig of the management cluster, whose context is called
// "management".
func (s *Simulator) ManagementKubeconfig() string {
	return filepath.Join(s.dir, ManagementKubeconfigFile)
}

// Config returns a configuration that reaches the API server of the simulated cluster whatever the state of its
// control planes. The history attributes its writes to others, with any user agent but the provider's.
func (s *Simulator) Config() (*rest.Config, error) { return s.kube.Config() }

// ManagementConfig returns the same for the management cluster, even while [Simulator.ManagementDown] keeps others
// from it.
func (s *Simulator) ManagementConfig() (*rest.Config, error) {
	if s.management == nil {
		return nil, errNoManagement()
	}

	return s.management.Config(), nil
}

// ManagementDown takes the management cluster away from the users of its kubeconfig and cuts their connections, or
// gives it back.
func (s *Simulator) ManagementDown(down bool) error {
	if s.management == nil {
		return errNoManagement()
	}

	return s.management.Down(down)
}

// Sync returns once every Kubernetes request that was answered before the call is in the history.
func (s *Simulator) Sync(ctx context.Context) error {
	if err := s.kube.Sync(ctx); err != nil || s.management == nil {
		return err
	}

	return s.management.Sync(ctx)
}

// Wait returns when ctx ends, or with the error of a process that has died.
func (s *Simulator) Wait(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()

	ended := make(chan error, 2)

	go func() { ended <- s.kube.Wait(waiting) }()

	if s.management != nil {
		go func() { ended <- s.management.Wait(waiting) }()
	}

	if err := <-ended; ctx.Err() == nil {
		return err
	}

	return nil
}
