// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// serverCertificate is trusted, unlike those of httptest.
var serverCertificate tls.Certificate

// trust makes a certificate for servers that every client here trusts, with its authority in the file.
func trust(file string) (tls.Certificate, error) {
	authority, err := certificate.NewAuthority(pkix.Name{CommonName: "authority"})
	if err != nil {
		return tls.Certificate{}, err
	}

	if err := os.WriteFile(file, authority.PEM, 0o600); err != nil {
		return tls.Certificate{}, err
	}

	if err := os.Setenv("SSL_CERT_FILE", file); err != nil {
		return tls.Certificate{}, err
	}

	pair, err := authority.Issue(x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return tls.Certificate{}, err
	}

	return pair.TLS()
}

func TestMain(m *testing.M) {
	// No test may read the credentials of whoever runs it.
	nowhere, err := os.MkdirTemp("", "release")
	if err != nil {
		log.Fatal(err)
	}

	for _, name := range []string{"HOME", "DOCKER_CONFIG", "XDG_RUNTIME_DIR"} {
		if err := os.Setenv(name, nowhere); err != nil {
			log.Fatal(err)
		}
	}

	serverCertificate, err = trust(filepath.Join(nowhere, "trusted.pem"))
	if err != nil {
		log.Fatal(err)
	}

	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(nowhere)
		os.Exit(code)
	}))
}

// newRegistry is go-containerregistry's own registry, with one image under all
// the tags. It returns the location of the repository.
func newRegistry(t *testing.T, guard func(http.Handler) http.Handler, tags ...string) string {
	t.Helper()

	backend := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open := httptest.NewServer(backend)
	t.Cleanup(open.Close)

	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)

	for _, tag := range tags {
		ref, err := name.NewTag(host(open) + "/talos/installer:" + tag)
		if err != nil {
			t.Fatal(err)
		}

		if err := remote.Write(ref, image, remote.WithContext(t.Context()), remote.WithTransport(transport)); err != nil {
			t.Fatal(err)
		}
	}

	guarded := httptest.NewServer(guard(backend))
	t.Cleanup(guarded.Close)

	return release.OCI + host(guarded) + "/talos/installer"
}

func host(server *httptest.Server) string { return strings.TrimPrefix(server.URL, "http://") }

// unguarded lets everybody in.
func unguarded(backend http.Handler) http.Handler { return backend }

// open is the source at the location.
func open(t *testing.T, product version.Product, location string, options release.Options) release.Source {
	t.Helper()

	source, err := release.New(product, location, options)
	if err != nil {
		t.Fatal(err)
	}

	return source
}

// factory is an Image Factory that answers every request like that.
func factory(t *testing.T, answer http.HandlerFunc, options release.Options) release.Source {
	t.Helper()

	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)

	options.FactoryURL = server.URL

	return open(t, version.Talos, release.Factory, options)
}

// brokenRegistry is a registry whose list of tags is that answer.
func brokenRegistry(t *testing.T, answer http.HandlerFunc, options release.Options) release.Source {
	t.Helper()

	mux := http.NewServeMux()
	mux.HandleFunc("/v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", answer)

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	return open(t, version.Talos, release.OCI+host(server)+"/talos/installer", options)
}

// texts are the versions as they are printed.
func texts(t *testing.T, source release.Source) string {
	t.Helper()

	list, err := source.Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return fmt.Sprint(list.Versions)
}

// refused fails the test unless the source fails with that meaning and with
// words that name it.
func refused(t *testing.T, source release.Source, meaning error, words ...string) {
	t.Helper()

	_, err := source.Versions(t.Context())
	if !errors.Is(err, meaning) {
		t.Fatalf("got %v, want %v", err, meaning)
	}

	t.Log(err)

	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}

	if strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 500 {
		t.Errorf("no message for a person: %q", err)
	}
}

// docker writes a configuration of docker with credentials for the host.
func docker(t *testing.T, host, encoded string) {
	t.Helper()

	dir := t.TempDir()
	content := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, encoded)

	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("HOME", dir)
	t.Setenv("DOCKER_CONFIG", dir)
}
