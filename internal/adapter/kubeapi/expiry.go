// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// Expiry is when the first of the client certificates in a kubeconfig expires;
// zero where it has none that can be read.
func Expiry(kubeconfig []byte) time.Time {
	var first time.Time

	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return first
	}

	for _, user := range parsed.AuthInfos {
		block, _ := pem.Decode(user.ClientCertificateData)
		if block == nil {
			continue
		}

		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}

		if first.IsZero() || certificate.NotAfter.Before(first) {
			first = certificate.NotAfter
		}
	}

	return first
}
