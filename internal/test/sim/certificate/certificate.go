// SPDX-License-Identifier: MPL-2.0

// Package certificate is the certificate authority of a simulated cluster.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"time"
)

const (
	// Life is the validity of certificates by default: longer than any simulation.
	Life = 10 * 365 * 24 * time.Hour
	// Backdate is for how long they have been valid already.
	Backdate = time.Hour
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	// PEM is its own certificate.
	PEM []byte

	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// Pair is a certificate with its key, both in PEM.
type Pair struct{ Certificate, Key []byte }

// NewAuthority makes a certificate authority.
func NewAuthority(subject pkix.Name) (*Authority, error) {
	made := &Authority{}

	pair, err := made.Issue(x509.Certificate{
		Subject: subject, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	})
	if err != nil {
		return nil, err
	}

	made.PEM = pair.Certificate

	return made, nil
}

// Issue signs a certificate. By default the validity is [Life], and the key usage is signing.
func (a *Authority) Issue(template x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generating a key for %s: %w", template.Subject, err)
	}

	const bits = 120
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits)); err != nil {
		return Pair{}, fmt.Errorf("choosing a serial number: %w", err)
	}

	if template.NotAfter.IsZero() {
		now := time.Now()
		template.NotBefore, template.NotAfter = now.Add(-Backdate), now.Add(Life)
	}

	if template.KeyUsage == 0 {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}

	parent, signer := a.certificate, a.key
	if signer == nil {
		parent, signer = &template, key
	}

	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("signing a certificate for %s: %w", template.Subject, err)
	}

	if a.key == nil {
		if a.certificate, err = x509.ParseCertificate(der); err != nil {
			return Pair{}, fmt.Errorf("reading the certificate authority back: %w", err)
		}

		a.key = key
	}

	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a private key: %w", err)
	}

	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	}, nil
}

// Pool returns a pool that trusts only the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)

	return pool
}

// TLS returns the pair for a listener.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Certificate, p.Key) }

// Write writes the pair to PATH.crt and PATH.key.
func (p Pair) Write(path string) error {
	if err := os.WriteFile(path+".crt", p.Certificate, 0o600); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}

	if err := os.WriteFile(path+".key", p.Key, 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}

	return nil
}
