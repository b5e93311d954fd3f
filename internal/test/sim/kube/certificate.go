// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// certificateLife is longer than any simulation.
const certificateLife = 10 * 365 * 24 * time.Hour

// authority signs all certificates of one simulated cluster.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

// pair is a certificate and its key, both in PEM.
type pair struct{ certificate, key []byte }

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of the certificate authority: %w", err)
	}

	template, err := newTemplate(pkix.Name{CommonName: "talossim kubernetes", Organization: []string{"talossim"}})
	if err != nil {
		return nil, err
	}

	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate authority: %w", err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority back: %w", err)
	}

	return &authority{key: key, certificate: certificate, pem: encodePEM("CERTIFICATE", der)}, nil
}

// client signs a certificate for a user of the given groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return pair{}, err
	}

	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	return a.sign(template)
}

// server signs a certificate for everything that listens on the loopback.
func (a *authority) server() (pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: "kube-apiserver"})
	if err != nil {
		return pair{}, err
	}

	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default.svc"}

	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generating a key for %s: %w", template.Subject.CommonName, err)
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing a certificate for %s: %w", template.Subject.CommonName, err)
	}

	encoded, err := encodeKey(key)
	if err != nil {
		return pair{}, err
	}

	return pair{certificate: encodePEM("CERTIFICATE", der), key: encoded}, nil
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}

	now := time.Now()

	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}

	return encodePEM("PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write puts the pair beside each other as NAME.crt and NAME.key.
func (p pair) write(path string) error {
	if err := os.WriteFile(path+".crt", p.certificate, 0o600); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}

	if err := os.WriteFile(path+".key", p.key, 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}

	return nil
}
