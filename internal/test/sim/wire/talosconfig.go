// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Contexts of the talosconfig besides the cluster's own; each name is the
// cluster's name with one of these behind it.
const (
	// ContextOperator and ContextReader have certificates of those roles.
	ContextOperator = "-operator"
	ContextReader   = "-reader"
	// ContextBackup may ask etcd, and take a snapshot of it, and nothing else.
	ContextBackup = "-etcd-backup"
	// ContextWorker has only a worker as endpoint.
	ContextWorker = "-worker"
	// ContextExpired has a certificate that is no longer valid.
	ContextExpired = "-expired"
	// ContextForeign belongs to another cluster altogether, by its
	// certificates; its endpoints are this one's.
	ContextForeign = "-foreign"
	// ContextDead has an endpoint where nothing ever listens.
	ContextDead = "-dead"
)

const clientLifetime = 365 * 24 * time.Hour

// Talosconfig is the client configuration, as YAML. Its current context is
// the cluster's name: role admin, with all control planes as endpoints. The
// Context constants name the others; ContextWorker exists with a worker only.
func (s *Server) Talosconfig() ([]byte, error) {
	planes, workers := s.endpointsOf(model.ControlPlane), s.endpointsOf(model.Worker)
	name := s.world.ClusterName()
	now := time.Now()
	from, to := now.Add(-certificate.Backdate), now.Add(clientLifetime)

	config := &clientconfig.Config{Context: name, Contexts: map[string]*clientconfig.Context{}}

	for _, entry := range []struct {
		suffix    string
		endpoints []string
		issuer    *certificate.Authority
		role      role.Role
		from, to  time.Time
	}{
		{"", planes, s.authority, role.Admin, from, to},
		{ContextOperator, planes, s.authority, role.Operator, from, to},
		{ContextReader, planes, s.authority, role.Reader, from, to},
		{ContextBackup, planes, s.authority, role.EtcdBackup, from, to},
		{ContextWorker, workers[:min(1, len(workers))], s.authority, role.Admin, from, to},
		{ContextExpired, planes, s.authority, role.Admin, now.Add(-2 * certificate.Backdate), now.Add(-certificate.Backdate)},
		{ContextForeign, planes, s.foreign, role.Admin, from, to},
		{ContextDead, []string{s.dead}, s.authority, role.Admin, from, to},
	} {
		if len(entry.endpoints) == 0 {
			continue
		}

		pair, err := entry.issuer.Issue(x509.Certificate{
			Subject: pkix.Name{Organization: []string{string(entry.role)}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			NotBefore: entry.from, NotAfter: entry.to,
		})
		if err != nil {
			return nil, fmt.Errorf("talosconfig: %w", err)
		}

		config.Contexts[name+entry.suffix] = &clientconfig.Context{
			Endpoints: entry.endpoints,
			CA:        base64.StdEncoding.EncodeToString(entry.issuer.PEM),
			Crt:       base64.StdEncoding.EncodeToString(pair.Certificate),
			Key:       base64.StdEncoding.EncodeToString(pair.Key),
		}
	}

	return config.Bytes()
}

func (s *Server) endpointsOf(role model.Role) []string {
	var addresses []string

	for _, endpoint := range s.Endpoints() {
		if endpoint.Role == role {
			addresses = append(addresses, endpoint.Address)
		}
	}

	return addresses
}
