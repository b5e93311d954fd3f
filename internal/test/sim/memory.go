// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// kubernetes is the Kubernetes of the machines.
type kubernetes interface {
	// Kubeconfig returns the administrator's kubeconfig, which reaches any control plane that serves.
	Kubeconfig() ([]byte, error)
	// Config returns a configuration that bypasses the control planes.
	Config() (*rest.Config, error)
	// Answered returns the size of all answers in bytes.
	Answered() int64
	// Sync returns once what was answered is in the history.
	Sync(ctx context.Context) error
	// Wait returns when the context ends, or with the error of what has died.
	Wait(ctx context.Context) error
	Stop(ctx context.Context) error
}

// memory is a Kubernetes in this process.
type memory struct {
	*apiserver.Socket

	server *apiserver.Server
}

func newMemory(world *model.World, pods int) (*memory, error) {
	server, err := apiserver.New(world)
	if err != nil {
		return nil, err
	}

	// An app has as many pods, and as many of them may be missing, as in the real Kubernetes.
	const replicas = 3

	for first := 0; first < pods; first += replicas {
		count := min(replicas, pods-first)
		server.AddApp(fmt.Sprintf("app-%d", first/replicas), count, &apiserver.Budget{MinAvailable: count - 1})
	}

	if err := server.Bootstrap(); err != nil {
		server.Stop()

		return nil, err
	}

	socket, err := server.ListenTCP()
	if err != nil {
		server.Stop()

		return nil, err
	}

	return &memory{Socket: socket, server: server}, nil
}

// Sync implements kubernetes: a request is in the history before it is answered.
func (m *memory) Sync(context.Context) error { return nil }

// Wait implements kubernetes: nothing here can die by itself.
func (m *memory) Wait(ctx context.Context) error {
	<-ctx.Done()

	return ctx.Err()
}

// Stop implements kubernetes.
func (m *memory) Stop(context.Context) error {
	m.Socket.Stop()
	m.server.Stop()

	return nil
}

// errInMemory returns an error if the options need a real API server.
func errInMemory(options Options) error {
	if options.CustomResources || options.Management {
		return errors.New("an API server in memory serves no custom resources of operators, and no management cluster: that needs the real one")
	}

	return nil
}
