// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
)

var _ cluster.Registry = (*release.Registry)(nil)

// newImage is the reference to an image that a registry has, without its tag.
func newImage(t *testing.T, guard func(http.Handler) http.Handler) string {
	t.Helper()

	return strings.TrimPrefix(newRegistry(t, guard, "v1.13.4"), release.OCI)
}

// answers is a reference to an image at a registry that answers like that when
// it is asked for it.
func answers(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()

	mux := http.NewServeMux()
	mux.HandleFunc("/v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", answer)

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	return host(server) + "/talos/installer:v1.13.4"
}

// missing fails the test unless looking for the image fails with that meaning,
// no other, and with the words.
func missing(t *testing.T, err error, meaning error, words ...string) {
	t.Helper()

	for _, other := range []error{cluster.ErrNotFound, cluster.ErrDenied, cluster.ErrUnreachable} {
		if want := errors.Is(meaning, other); errors.Is(err, other) != want {
			t.Fatalf("got %v; want %v", err, meaning)
		}
	}

	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}

	if strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 700 {
		t.Errorf("no message for a person: %q", err)
	}
}

// watch remembers what was asked of a registry.
type watch struct {
	mutex   sync.Mutex
	methods map[string]int
	agent   string
	digest  string
}

func (o *watch) guard(backend http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		backend.ServeHTTP(w, r)

		o.mutex.Lock()
		defer o.mutex.Unlock()

		o.agent = r.UserAgent()

		if strings.Contains(r.URL.Path, "/manifests/") {
			o.methods[r.Method]++
			o.digest = w.Header().Get("Docker-Content-Digest")
		}
	})
}

func TestRegistry_ImageIsFoundWithoutADownload(t *testing.T) {
	t.Parallel()

	seen := &watch{methods: map[string]int{}}
	repository := newImage(t, seen.guard)
	registry := release.NewRegistry(release.Options{UserAgent: "talosupgrade/test"})

	if err := registry.Image(t.Context(), repository+":v1.13.4"); err != nil {
		t.Fatal(err)
	}

	if seen.digest == "" || !strings.HasPrefix(seen.agent, "talosupgrade/test") {
		t.Fatalf("digest %q, user agent %q", seen.digest, seen.agent)
	}

	for _, reference := range []string{repository + "@" + seen.digest, repository + ":v1.13.4@" + seen.digest} {
		if err := registry.Image(t.Context(), reference); err != nil {
			t.Errorf("%s: %v", reference, err)
		}
	}

	if seen.methods[http.MethodHead] != 3 || len(seen.methods) != 1 {
		t.Errorf("manifests were asked for with %v, want three times HEAD", seen.methods)
	}
}

func TestRegistry_MissingImageIsNotFound(t *testing.T) {
	t.Parallel()

	repository := newImage(t, unguarded)
	registry := release.NewRegistry(release.Options{})

	for name, reference := range map[string]string{
		"no such tag":        repository + ":v1.13.99",
		"no such digest":     repository + "@sha256:" + strings.Repeat("0", 64),
		"no such repository": repository + "/nobody:v1.13.4",
	} {
		missing(t, registry.Image(t.Context(), reference), cluster.ErrNotFound, reference, "404", "_UNKNOWN")
		t.Log(name)
	}

	page := answers(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>nothing here</html>", http.StatusNotFound)
	})
	missing(t, registry.Image(t.Context(), page), cluster.ErrNotFound, page, "404 Not Found")
}

func TestRegistry_InvalidReferenceIsNotFound(t *testing.T) {
	t.Parallel()

	registry := release.NewRegistry(release.Options{})

	for _, reference := range []string{"", "UPPER/case:v1", "a b", "host/repo:v1:v2", "host/repo@sha256:1"} {
		missing(t, registry.Image(t.Context(), reference), cluster.ErrNotFound, "is no reference")
	}

	for _, reference := range []string{"user:s3cret@host/repo:v1", "https://user:s3cret@host/repo:v1", "host/repo:v1?token=s3cret"} {
		err := registry.Image(t.Context(), reference)
		missing(t, err, cluster.ErrNotFound, "is no reference")

		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v repeats the password", err)
		}
	}
}

func TestRegistry_IncompleteHeadIsFollowedByTheManifest(t *testing.T) {
	t.Parallel()

	head := func(answer func(http.ResponseWriter)) func(http.Handler) http.Handler {
		return func(backend http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					answer(w)

					return
				}

				backend.ServeHTTP(w, r)
			})
		}
	}

	for name, guard := range map[string]func(http.Handler) http.Handler{
		"not allowed":     head(func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) }),
		"not implemented": head(func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotImplemented) }),
		"not routed":      head(func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }),
		"no digest":       head(func(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/json") }),
		"no headers":      head(func(http.ResponseWriter) {}),
	} {
		repository := newImage(t, guard)
		registry := release.NewRegistry(release.Options{})

		if err := registry.Image(t.Context(), repository+":v1.13.4"); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		missing(t, registry.Image(t.Context(), repository+":v1.13.99"), cluster.ErrNotFound, "MANIFEST_UNKNOWN")
	}
}

func TestRegistry_OneFailureIsForgiven(t *testing.T) {
	t.Parallel()

	for failures, want := range map[int64]error{1: nil, 3: cluster.ErrUnreachable} {
		var asked atomic.Int64

		repository := newImage(t, func(backend http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/manifests/") && asked.Add(1) <= failures {
					w.WriteHeader(http.StatusBadGateway)

					return
				}

				backend.ServeHTTP(w, r)
			})
		})

		if err := release.NewRegistry(release.Options{}).Image(t.Context(), repository+":v1.13.4"); !errors.Is(err, want) {
			t.Errorf("after %d failures: %v, want %v", failures, err, want)
		}

		if got := asked.Load(); got != 2 {
			t.Errorf("the registry was asked %d times, want twice", got)
		}
	}
}

func TestRegistry_CancelledLookHasTheCallersReason(t *testing.T) {
	t.Parallel()

	stopped := errors.New("stopped by hand")
	ctx, cancel := context.WithCancelCause(t.Context())
	reference := answers(t, func(w http.ResponseWriter, r *http.Request) {
		cancel(stopped)
		hang(w, r)
	})

	err := release.NewRegistry(release.Options{}).Image(ctx, reference)
	if !errors.Is(err, stopped) {
		t.Errorf("%v, want %v", err, stopped)
	}

	missing(t, err, stopped)
}

func TestRegistry_ServesManyCallers(t *testing.T) {
	t.Parallel()

	repository := newImage(t, unguarded)
	registry := release.NewRegistry(release.Options{})

	var group sync.WaitGroup

	for i := range 8 {
		group.Go(func() {
			tag, want := "v1.13.4", error(nil)
			if i%2 == 1 {
				tag, want = "v1.13.99", cluster.ErrNotFound
			}

			if err := registry.Image(t.Context(), repository+":"+tag); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", tag, err, want)
			}
		})
	}

	group.Wait()
}

func TestRegistry_TakesCredentialsFromTheKeychain(t *testing.T) {
	for name, guard := range map[string]func(http.Handler) http.Handler{"basic": basic, "bearer": bearer} {
		t.Run(name, func(t *testing.T) {
			repository := newImage(t, guard)
			registry := release.NewRegistry(release.Options{})
			address, _, _ := strings.Cut(repository, "/")

			missing(t, registry.Image(t.Context(), repository+":v1.13.4"), cluster.ErrDenied, repository, "401")

			docker(t, address, base64.StdEncoding.EncodeToString([]byte("reader:wr0ng")))

			err := registry.Image(t.Context(), repository+":v1.13.4")
			missing(t, err, cluster.ErrDenied, repository)

			if strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("%v repeats the password", err)
			}

			docker(t, address, base64.StdEncoding.EncodeToString([]byte("reader:s3cret")))

			if err := registry.Image(t.Context(), repository+":v1.13.4"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRegistry_AnswersHaveAMeaning(t *testing.T) {
	t.Parallel()

	says := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, body)
		}
	}

	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		meaning error
		word    string
	}{
		"forbidden":           {says(http.StatusForbidden, ""), cluster.ErrDenied, "403 Forbidden"},
		"unauthorized":        {says(http.StatusUnauthorized, ""), cluster.ErrDenied, "401 Unauthorized"},
		"denied by code":      {says(http.StatusBadRequest, `{"errors":[{"code":"DENIED","message":"ask the owner"}]}`), cluster.ErrDenied, "ask the owner"},
		"unknown by code":     {says(http.StatusBadRequest, `{"errors":[{"code":"NAME_UNKNOWN"}]}`), cluster.ErrNotFound, "NAME_UNKNOWN"},
		"too many requests":   {says(http.StatusTooManyRequests, ""), cluster.ErrUnreachable, "429"},
		"broken":              {says(http.StatusInternalServerError, ""), cluster.ErrUnreachable, "500"},
		"not available":       {says(http.StatusServiceUnavailable, ""), cluster.ErrUnreachable, "503"},
		"moved nowhere":       {says(http.StatusMultipleChoices, ""), cluster.ErrUnreachable, "300"},
		"moved to the signed": {signed, cluster.ErrUnreachable, "500"},
		"cut off":             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, cluster.ErrUnreachable, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			reference := answers(t, test.answer)
			err := release.NewRegistry(release.Options{}).Image(t.Context(), reference)
			missing(t, err, test.meaning, reference, test.word)

			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v repeats a signature", err)
			}
		})
	}
}

// signed points to a place whose address is as good as a password.
func signed(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("signature") {
		w.WriteHeader(http.StatusInternalServerError)

		return
	}

	http.Redirect(w, r, "/elsewhere?signature=s3cret", http.StatusTemporaryRedirect)
}

func TestRegistry_AnotherServerIsUnreachable(t *testing.T) {
	t.Parallel()

	nothing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(nothing.Close)

	for name, test := range map[string]struct{ at, word string }{
		"nobody listens": {"127.0.0.1:1", "refused"},
		"no such host":   {"registry.invalid", ""},
		"something else": {host(nothing), "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := release.NewRegistry(release.Options{Timeout: 3 * time.Second}).Image(t.Context(), test.at+"/talos/installer:v1.13.4")
			missing(t, err, cluster.ErrUnreachable, test.at, test.word)
		})
	}
}

func TestRegistry_ThatHangsIsUnreachableInTime(t *testing.T) {
	t.Parallel()

	reference := answers(t, hang)

	err := release.NewRegistry(release.Options{Timeout: 300 * time.Millisecond}).Image(t.Context(), reference)
	missing(t, err, cluster.ErrUnreachable, "no answer within 300ms")
}
