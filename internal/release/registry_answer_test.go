// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
)

func TestRegistriesTakeCredentialsFromTheKeychain(t *testing.T) {
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

func TestAnswersOfRegistriesHaveAMeaning(t *testing.T) {
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

func TestWhatIsNoRegistryIsUnreachable(t *testing.T) {
	t.Parallel()

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}

	nothing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(nothing.Close)

	for name, test := range map[string]struct{ at, word string }{
		"nobody listens": {closed.Addr().String(), "refused"},
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

func TestRegistriesThatHangAreUnreachableInTime(t *testing.T) {
	t.Parallel()

	reference := answers(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	start := time.Now()

	err := release.NewRegistry(release.Options{Timeout: 300 * time.Millisecond}).Image(t.Context(), reference)
	missing(t, err, cluster.ErrUnreachable, "no answer within 300ms")

	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}
