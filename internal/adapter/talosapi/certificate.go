// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Certificate describes a client certificate.
type Certificate struct {
	roles     []string
	notBefore time.Time
	notAfter  time.Time
}

// Roles returns the Talos roles in the certificate, such as "os:admin".
func (c Certificate) Roles() []string { return slices.Clone(c.roles) }

// NotAfter returns when the certificate expires.
func (c Certificate) NotAfter() time.Time { return c.notAfter }

// admin reports whether the roles may include full access. It is true for a certificate without any role, for which
// the node decides.
func (c Certificate) admin() bool {
	return len(c.roles) == 0 || slices.Contains(c.roles, "os:admin")
}

// validity returns what is wrong with the certificate at the given time; empty if it is valid.
func (c Certificate) validity(now time.Time) string {
	switch {
	case now.After(c.notAfter):
		return "the client certificate expired on " + c.notAfter.UTC().Format(time.RFC3339)
	case now.Before(c.notBefore):
		return "the client certificate is valid only from " + c.notBefore.UTC().Format(time.RFC3339) + " on"
	default:
		return ""
	}
}

func parseCertificate(ca, crt, key []byte) (Certificate, error) {
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return Certificate{}, errors.New(`"ca" holds no PEM certificate`)
	}

	block, _ := pem.Decode(crt)
	if block == nil {
		return Certificate{}, errors.New(`"crt" is not PEM`)
	}

	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Certificate{}, errors.New(`"crt" is not a certificate`)
	}

	if block, _ := pem.Decode(key); block == nil {
		return Certificate{}, errors.New(`"key" is not PEM`)
	}

	if _, err := tls.X509KeyPair(crt, key); err != nil {
		return Certificate{}, fmt.Errorf(`"crt" and "key" do not belong together: %w`, err)
	}

	return Certificate{
		roles:     slices.Clone(leaf.Subject.Organization),
		notBefore: leaf.NotBefore,
		notAfter:  leaf.NotAfter,
	}, nil
}
