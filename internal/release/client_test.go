// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestFactory_ListsVersions(t *testing.T) {
	t.Parallel()

	var path, agent string

	source := factory(t, func(w http.ResponseWriter, r *http.Request) {
		path, agent = r.URL.Path, r.UserAgent()
		_, _ = fmt.Fprint(w, `["v1.9.10", "v1.9.9", "v1.10.0-beta.0", "v1.10.0"]`)
	}, release.Options{UserAgent: "tester/1"})

	if got := texts(t, source); got != "[1.9.9 1.9.10 1.10.0]" {
		t.Errorf("got %s", got)
	}

	if path != "/versions" || agent != "tester/1" {
		t.Errorf("asked for %s as %s", path, agent)
	}
}

func TestFactory_RedirectsAndPathsAreFollowed(t *testing.T) {
	t.Parallel()

	mux := http.NewServeMux()
	mux.Handle("/factory/versions", http.RedirectHandler("/elsewhere", http.StatusFound))
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `["v1.13.4"]`) })

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	source := open(t, version.Talos, release.Factory, release.Options{FactoryURL: server.URL + "/factory/"})
	if got := texts(t, source); got != "[1.13.4]" {
		t.Errorf("got %s", got)
	}
}

// hang never answers. If it only returned when the other side gives up, the server would answer 200 with an empty body,
// and a client that closes its connection may still read that.
func hang(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()

	panic(http.ErrAbortHandler)
}

// trickle sends a beginning, and then never anything else.
func trickle(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprint(w, `{"tags": ["v1.13.4", `)
	_ = http.NewResponseController(w).Flush()

	hang(w, r)
}

// flood never stops to send.
func flood(w http.ResponseWriter, _ *http.Request) {
	tags := strings.Repeat(`"v1.13.4", `, 1<<10)

	_, err := fmt.Fprint(w, `{"tags": [`)
	for err == nil {
		_, err = fmt.Fprint(w, tags)
	}
}

// hangUp ends the connection without a word.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = connection.Close()
	}
}

// status is an answer that consists of a status and a text.
func status(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, text)
	}
}

func TestClient_RubbishIsOneErrorThatNamesTheSource(t *testing.T) {
	t.Parallel()

	const page = "<html>\n<title>Sign in to the hotel</title>"

	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		timeout time.Duration
		meaning error
		words   string
	}{
		"not found":              {status(http.StatusNotFound, page), 0, release.ErrNotFound, "404 Not Found"},
		"unauthorized":           {status(http.StatusUnauthorized, page), 0, release.ErrDenied, "401 Unauthorized"},
		"forbidden":              {status(http.StatusForbidden, ""), 0, release.ErrDenied, "403 Forbidden"},
		"internal error":         {status(http.StatusInternalServerError, page), 0, release.ErrUnreachable, "500 Internal Server Error"},
		"overloaded":             {status(http.StatusServiceUnavailable, ""), 0, release.ErrUnreachable, "503 Service Unavailable"},
		"too many requests":      {status(http.StatusTooManyRequests, ""), 0, release.ErrUnreachable, "429 Too Many Requests"},
		"no content":             {status(http.StatusNoContent, ""), 0, release.ErrAnswer, "204 No Content"},
		"status without a name":  {status(799, ""), 0, release.ErrUnreachable, "status 799"},
		"a page":                 {status(http.StatusOK, page), 0, release.ErrAnswer, "unusable answer"},
		"broken JSON":            {status(http.StatusOK, `{"tags": ["v1.13.4", oops]}`), 0, release.ErrAnswer, "unusable answer"},
		"another kind of JSON":   {status(http.StatusOK, `{"tags": {"v1.13.4": true}}`), 0, release.ErrAnswer, "unusable answer"},
		"numbers":                {status(http.StatusOK, `{"tags": [1.13, 1.14]}`), 0, release.ErrAnswer, "unusable answer"},
		"no tags":                {status(http.StatusOK, `{"tags": []}`), 0, release.ErrEmpty, "nothing at all"},
		"null":                   {status(http.StatusOK, `{"tags": null}`), 0, release.ErrEmpty, "nothing at all"},
		"no versions":            {status(http.StatusOK, `{"tags": ["latest", "main"]}`), 0, release.ErrEmpty, "2 entries, the first of which is latest"},
		"only pre-releases":      {status(http.StatusOK, `{"tags": ["v1.15.0-alpha.1", "v1.15.0-rc.0"]}`), 0, release.ErrEmpty, "2 pre-releases"},
		"hanging":                {hang, 200 * time.Millisecond, release.ErrUnreachable, "no answer within 200ms"},
		"hanging in the middle":  {trickle, 200 * time.Millisecond, release.ErrUnreachable, "no answer within 200ms"},
		"endless":                {flood, 0, release.ErrAnswer, "larger than 4 MiB"},
		"hung up":                {hangUp, 0, release.ErrUnreachable, "EOF"},
		"redirected in a circle": {circle, 0, release.ErrAnswer, "redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			options := release.Options{Timeout: test.timeout}

			t.Run("repository", func(t *testing.T) {
				t.Parallel()
				refused(t, brokenRegistry(t, test.answer, options), test.meaning, "oci://127.0.0.1:", "/talos/installer: ", test.words)
			})

			t.Run("factory", func(t *testing.T) {
				t.Parallel()
				refused(t, factory(t, bare(test.answer), options), test.meaning, "http://127.0.0.1:", "/versions: ", test.words)
			})
		})
	}
}

// circle redirects to itself.
func circle(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, r.URL.Path, http.StatusFound)
}

// bare turns the answer of a registry into that of a factory: the list alone,
// without the object around it.
func bare(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { answer(&unwrapped{ResponseWriter: w}, r) }
}

type unwrapped struct{ http.ResponseWriter }

func (u *unwrapped) Write(text []byte) (int, error) {
	inner, found := strings.CutPrefix(string(text), `{"tags": `)
	if found {
		inner = strings.TrimSuffix(inner, "}")
	}

	_, err := u.ResponseWriter.Write([]byte(inner))

	return len(text), err
}

func (u *unwrapped) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func TestClient_EndlessChainOfPagesIsCutOff(t *testing.T) {
	t.Parallel()

	page := `{"tags": [` + strings.Repeat(`"v1.13.4", `, 1<<15) + `"v1.13.5"]}`
	source := brokenRegistry(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", `</v2/talos/installer/tags/list?last=again>; rel="next"`)
		_, _ = fmt.Fprint(w, page)
	}, release.Options{})

	refused(t, source, release.ErrAnswer, "larger than 4 MiB")
}

func TestClient_SourceThatNobodyServesIsUnreachable(t *testing.T) {
	t.Parallel()

	// Any other port can be taken by a server of another test.
	refused(t, open(t, version.Talos, release.Factory, release.Options{FactoryURL: "http://127.0.0.1:1"}), release.ErrUnreachable, "refused")
	refused(t, open(t, version.Talos, release.OCI+"127.0.0.1:1/talos/installer", release.Options{}), release.ErrUnreachable, "refused")
}

func TestClient_CertificateThatIsNotTrusted(t *testing.T) {
	t.Parallel()

	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	refused(t, open(t, version.Talos, release.Factory, release.Options{FactoryURL: server.URL}), release.ErrUnreachable, "certificate")
}

func TestClient_CancelIsNoTimeout(t *testing.T) {
	t.Parallel()

	for name, source := range map[string]release.Source{
		"factory":    factory(t, hang, release.Options{}),
		"repository": brokenRegistry(t, hang, release.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithCancel(t.Context())
			cancel()

			if _, err := source.Versions(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, release.ErrUnreachable) {
				t.Errorf("got %v", err)
			}
		})
	}
}
