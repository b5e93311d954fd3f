// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
)

const (
	// startTimeout bounds the start of all processes on a slow machine.
	startTimeout = 90 * time.Second
	// startPoll is how often a process is asked whether it serves.
	startPoll = 20 * time.Millisecond
	// startAttempts allows for a port that somebody took in the last moment.
	startAttempts = 3
)

// plane is the real part of the cluster: etcd, kube-apiserver and, where there are
// machines, kube-controller-manager.
type plane struct {
	binaries Binaries
	dir      string
	logs     string
	ca       *certificate.Authority
	audit    io.Writer

	etcdURL   string
	address   string
	processes []*process
}

// start brings up etcd and the API server, and returns once it serves.
func (p *plane) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	var failed error

	for range startAttempts {
		if failed = p.try(ctx); failed == nil || ctx.Err() != nil {
			break
		}

		failed = errors.Join(failed, p.stop())
	}

	return failed
}

func (p *plane) try(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}

	if err := p.startEtcd(ctx, ports[0], ports[1]); err != nil {
		return err
	}

	return p.startAPIServer(ctx, ports[2])
}

func (p *plane) startEtcd(ctx context.Context, clientPort, peerPort int) error {
	data := filepath.Join(p.dir, "etcd")
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("clearing the data of an earlier etcd: %w", err)
	}

	p.etcdURL = "http://" + hostPort(clientPort)
	peer := "http://" + hostPort(peerPort)

	child, err := startProcess(p.logs, "etcd", p.binaries.Etcd, nil,
		"--name=talossim", "--data-dir="+data,
		"--listen-client-urls="+p.etcdURL, "--advertise-client-urls="+p.etcdURL,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=talossim="+peer,
		// Nothing here outlives the process, so a power cut may take it.
		"--unsafe-no-fsync", "--log-level=warn",
	)
	if err != nil {
		return err
	}

	p.processes = append(p.processes, child)

	return child.serves(ctx, &http.Transport{DisableKeepAlives: true}, p.etcdURL+"/health")
}

// stop ends what was started, the last first.
func (p *plane) stop() error {
	var failed error

	for _, child := range slices.Backward(p.processes) {
		failed = errors.Join(failed, child.stop())
	}

	p.processes = nil

	return failed
}

// serves waits until the process answers at the URL, or ends.
func (p *process) serves(ctx context.Context, transport http.RoundTripper, url string) error {
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()

	for {
		last := probe(ctx, transport, url)
		if last == nil {
			return nil
		}

		select {
		case <-ticker.C:
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to serve: %w (last: %w; its log is %s)", p.name, ctx.Err(), last, p.log)
		}
	}
}

func probe(ctx context.Context, transport http.RoundTripper, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}

	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer response.Body.Close()

	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s", url, response.Status)
	}

	return nil
}

// config is the configuration of a client that talks to the API server
// directly, whatever the state of the simulated machines.
func (p *plane) config(identity certificate.Pair, agent string) *rest.Config {
	return &rest.Config{
		Host:      "https://" + p.address,
		UserAgent: agent,
		// Negative means no limit; a limit would add delays that do not scale
		// with the speed of the simulation.
		QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   p.ca.PEM,
			CertData: identity.Certificate,
			KeyData:  identity.Key,
		},
	}
}
