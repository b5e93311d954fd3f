// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// material is base64 of PEM, as a talosconfig holds it.
type material struct{ ca, crt, key string }

// mint makes a CA and a client certificate with the given roles.
func mint(t *testing.T, notAfter time.Time, roles ...string) material {
	t.Helper()

	caKey, ca := issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, NotAfter: notAfter,
	}, nil, nil)

	authority, err := x509.ParseCertificate(ca)
	if err != nil {
		t.Fatal(err)
	}

	key, leaf := issue(t, &x509.Certificate{Subject: pkix.Name{Organization: roles}, NotAfter: notAfter}, authority, caKey)

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	return material{ca: armour("CERTIFICATE", ca), crt: armour("CERTIFICATE", leaf), key: armour("PRIVATE KEY", der)}
}

func issue(t *testing.T, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template.SerialNumber = big.NewInt(1)
	template.NotBefore = time.Now().Add(-time.Hour)

	if parent == nil {
		parent, parentKey = template, key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}

	return key, der
}

func armour(kind string, der []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
