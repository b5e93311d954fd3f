// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestRepository_TagsThatAreNoReleaseAreSkipped(t *testing.T) {
	t.Parallel()

	location := newRegistry(t, unguarded,
		"v1.34.10", "v1.34.9", "1.34.9", "v1.33.0", "v1.35.0-rc.1", "v1.35.0-alpha.0", "v1.34.1-slim", "v1.34.2-fat", "v1.34.3-amd64",
		"v1.36.0-alpha.1-12-gabcdef0", "latest", "v1.34", "1.13", "sha256-376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba.sig",
		"v1.34.4.5", "v01.34.4", "edge-1.34.5")

	for name, test := range map[string]struct {
		options release.Options
		want    string
	}{
		"releases":             {release.Options{}, "[1.33.0 1.34.9 1.34.10]"},
		"pre-releases as well": {release.Options{PreReleases: true}, "[1.33.0 1.34.9 1.34.10 1.35.0-alpha.0 1.35.0-rc.1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := texts(t, open(t, version.Kubernetes, location, test.options)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestRepository_AnswerSaysWhereItComesFrom(t *testing.T) {
	t.Parallel()

	location := newRegistry(t, unguarded, "v1.13.4")

	list, err := open(t, version.Talos, location, release.Options{}).Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if list.Source != location || list.AsOf != "" {
		t.Errorf("got source %q as of %q", list.Source, list.AsOf)
	}
}

func TestRepository_PagesOfTagsAreFollowed(t *testing.T) {
	t.Parallel()

	source := brokenRegistry(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("last") {
		case "":
			w.Header().Set("Link", `</v2/talos/installer/tags/list?last=one>; rel="next"`)
			_, _ = fmt.Fprint(w, `{"tags": ["v1.12.0", "latest"]}`)
		case "one":
			w.Header().Set("Link", `</v2/talos/installer/tags/list?last=two>; rel="next"`)
			_, _ = fmt.Fprint(w, `{"tags": []}`)
		default:
			_, _ = fmt.Fprint(w, `{"tags": ["v1.13.0"]}`)
		}
	}, release.Options{})

	if got := texts(t, source); got != "[1.12.0 1.13.0]" {
		t.Errorf("got %s", got)
	}
}

// basic asks for a user and a password.
func basic(backend http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "reader" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="mirror"`)
			http.Error(w, `{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}`, http.StatusUnauthorized)

			return
		}

		backend.ServeHTTP(w, r)
	})
}

// bearer asks for a token, which it gives to those with user and password.
func bearer(backend http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			basic(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprint(w, `{"token": "t0ken"}`)
			})).ServeHTTP(w, r)

			return
		}

		if r.Header.Get("Authorization") != "Bearer t0ken" {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="mirror"`, r.Host))
			http.Error(w, `{"errors": [{"code": "UNAUTHORIZED"}]}`, http.StatusUnauthorized)

			return
		}

		backend.ServeHTTP(w, r)
	})
}

func TestRepository_CredentialsComeFromTheKeychain(t *testing.T) {
	for name, guard := range map[string]func(http.Handler) http.Handler{"basic": basic, "bearer": bearer} {
		t.Run(name, func(t *testing.T) {
			location := newRegistry(t, guard, "v1.13.4")
			source := open(t, version.Talos, location, release.Options{})
			registry, _, _ := strings.Cut(strings.TrimPrefix(location, release.OCI), "/")

			refused(t, source, release.ErrDenied, location, "401")

			docker(t, registry, base64.StdEncoding.EncodeToString([]byte("reader:wr0ng")))
			refused(t, source, release.ErrDenied, location)

			if _, err := source.Versions(t.Context()); strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("the password is in the message: %v", err)
			}

			docker(t, registry, base64.StdEncoding.EncodeToString([]byte("reader:s3cret")))

			if got := texts(t, source); got != "[1.13.4]" {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestRepository_MissingOneIsNamed(t *testing.T) {
	t.Parallel()

	location := newRegistry(t, unguarded, "v1.13.4") + "/nobody"
	refused(t, open(t, version.Talos, location, release.Options{}), release.ErrNotFound, location, "404")
}
