// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
)

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	backdate   = time.Hour
)

// authority is a certificate authority of one cluster.
type authority struct {
	certificate *x509.Certificate
	key         ed25519.PrivateKey
	pem         []byte
}

// keyPair is a certificate with its key, both as PEM.
type keyPair struct {
	certificate, key []byte
}

func newAuthority(now time.Time) (*authority, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}

	serial, err := newSerial()
	if err != nil {
		return nil, err
	}

	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"talos"}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}

	return &authority{certificate: certificate, key: private, pem: encode("CERTIFICATE", der)}, nil
}

// client issues a client certificate whose organization is the role.
func (a *authority) client(as role.Role, notBefore, notAfter time.Time) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{Organization: []string{string(as)}},
		NotBefore:   notBefore,
		NotAfter:    notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues the certificate of a machine's API.
func (a *authority) server(now time.Time, name, address string) (tls.Certificate, error) {
	pair, err := a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(caLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{name, "localhost"},
		IPAddresses: []net.IP{net.ParseIP(address), net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.X509KeyPair(pair.certificate, pair.key)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("certificate: %w", err)
	}

	if template.SerialNumber, err = newSerial(); err != nil {
		return keyPair{}, err
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("certificate: %w", err)
	}

	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return keyPair{}, fmt.Errorf("certificate: %w", err)
	}

	return keyPair{certificate: encode("CERTIFICATE", der), key: encode("PRIVATE KEY", key)}, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)

	return pool
}

func newSerial() (*big.Int, error) {
	const bits = 120

	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits))
	if err != nil {
		return nil, fmt.Errorf("certificate serial: %w", err)
	}

	return serial, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
