// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// selfSigned is a client certificate that nobody trusts: these tests reach
// nothing.
func selfSigned(t *testing.T) *clientCertificate {
	t.Helper()

	return signedUntil(t, time.Now().Add(time.Hour))
}

func signedUntil(t *testing.T, expires time.Time) *clientCertificate {
	t.Helper()

	return signedFor(t, expires, "os:admin")
}

func signedFor(t *testing.T, expires time.Time, roles ...string) *clientCertificate {
	t.Helper()

	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: roles},
		NotBefore: expires.Add(-24 * time.Hour), NotAfter: expires,
	}

	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}

	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	encoded := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}

	return &clientCertificate{CA: encoded("CERTIFICATE", certificate), Cert: encoded("CERTIFICATE", certificate), Key: encoded("PRIVATE KEY", key)}
}

func testSettings() *settings {
	return &settings{version: "test", clock: engine.RealClock()}
}

// TestConnectionHasWhatKubernetesTakes: without the Kubernetes API there is
// nothing to look for removals in, and nothing to apply manifests to.
func TestConnectionHasWhatKubernetesTakes(t *testing.T) {
	access := credentials{
		Endpoints: []string{"127.0.0.1:1"}, Certificate: selfSigned(t),
		Kubeconfig: "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://vip.example.com:7443'}}]\n" +
			"users: [{name: a, user: {token: t}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n",
	}
	shared := testSettings()

	var servers serverAddresses

	reached, err := dial(t.Context(), shared, access, "", kubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	if reached.removals == nil || reached.manifests == nil || reached.store == nil || reached.workloads == nil || reached.objects == nil {
		t.Errorf("removals %v, manifests %v, workloads %v, objects %v", reached.removals, reached.manifests, reached.workloads, reached.objects)
	}

	if got, want := servers.addresses(), []string{"127.0.0.1:6443", "127.0.0.1:7443"}; !slices.Equal(got, want) {
		t.Errorf("other API servers %q, want %q", got, want)
	}

	if err := reached.close(); err != nil {
		t.Error(err)
	}

	access.Kubeconfig = ""

	reached, err = dial(t.Context(), shared, access, "", kubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	if reached.removals != nil || reached.manifests != nil || reached.store != nil || reached.workloads != nil || reached.objects != nil || reached.kubernetes == nil {
		t.Errorf("removals %v, manifests %v, workloads %v, objects %v although there is no Kubernetes API", reached.removals, reached.manifests, reached.workloads, reached.objects)
	}

	if err := reached.close(); err != nil {
		t.Error(err)
	}
}

// TestEngineCallsTheClusterByItsContext: snapshots of etcd are named after it.
func TestEngineCallsTheClusterByItsContext(t *testing.T) {
	reaching := newClusters(testSettings(), credentials{})

	for want, reached := range map[string]*connection{
		"north":                             {name: `talosconfig context "north"`, context: "north"},
		"client configuration for 10.5.0.2": {name: "client configuration for 10.5.0.2"},
	} {
		if got := reaching.engine(reached, nil).ClusterName; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestARoleThatReadsNothingIsRefusedAtOnce: with os:etcd:backup every node would
// seem to be silent.
func TestARoleThatReadsNothingIsRefusedAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		roles []string
		want  string
	}{
		"a backup": {[]string{"os:etcd:backup"}, "Unusable credentials: the certificate of the client configuration for 127.0.0.1:1 has the role os:etcd:backup, " +
			"with which a cluster can be neither looked at nor upgraded; a plan needs os:reader, and an upgrade os:admin.\n\n" +
			"Correct them and run the command again; nothing was contacted."},
		"a backup that reads":             {[]string{"os:etcd:backup", "os:reader"}, ""},
		"an operator":                     {[]string{"os:operator"}, ""},
		"no role, for the nodes to judge": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			access := credentials{
				Endpoints: []string{"127.0.0.1:1"}, Certificate: signedFor(t, time.Now().Add(time.Hour), test.roles...),
				Kubeconfig: "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://vip.example.com:7443'}}]\n" +
					"users: [{name: a, user: {token: t}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n",
			}

			reached, err := dial(t.Context(), testSettings(), access, "", kubeconfigCache{servers: &serverAddresses{}})
			if err != nil {
				if got := problem("plan the upgrade", access, err); got.Summary() != "Unusable credentials" || got.Detail() != test.want {
					t.Errorf("%s: %s\nwant %s", got.Summary(), got.Detail(), test.want)
				}

				return
			}

			if test.want != "" {
				t.Error("it is let in")
			}

			if err := reached.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
