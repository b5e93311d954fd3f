// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const tableText = "as-of 2096-12-01\ntalos 1.14.99\nstop 1.14.6 | withdrawn | was broken | Choose another. | x#1\n"

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))

	return hex.EncodeToString(sum[:])
}

// written is a file with the text.
func written(t *testing.T, text string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "releases.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// serving answers over TLS with a certificate that is trusted.
func serving(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()

	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serverCertificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)

	return server.URL + "/releases.txt"
}

func tells(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func TestTable_IsReadFromFilesAndAddresses(t *testing.T) {
	t.Parallel()

	agents := make(chan string, 1)
	remote := serving(t, func(w http.ResponseWriter, req *http.Request) {
		agents <- req.UserAgent()

		tells(tableText)(w, req)
	})

	for name, at := range map[string]release.TableLocation{
		"a file":                 {Location: written(t, tableText)},
		"a file with its SHA256": {Location: written(t, tableText), SHA256: strings.ToUpper(sumOf(tableText))},
		"an address":             {Location: remote, SHA256: sumOf(tableText)},
	} {
		table, err := release.ReadTable(t.Context(), at, release.Options{UserAgent: "provider/test"})
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		newest, _ := table.Newest(version.Talos, version.MustParse("1.14.0").Minor())
		if newest.String() != "1.14.99" || table.Source != at.Location || table.AsOf != "2096-12-01" || table.Unread != "" {
			t.Errorf("%s: newest %s from %s as of %s, unread %q", name, newest, table.Source, table.AsOf, table.Unread)
		}

		list, err := open(t, version.Talos, release.Embedded, release.Options{Table: table}).Versions(t.Context())
		if err != nil || !strings.HasSuffix(list.Source, at.Location) || list.AsOf != "2096-12-01" {
			t.Errorf("%s: %+v, %v", name, list, err)
		}

		for _, offered := range list.Versions {
			if offered.Equal(version.MustParse("1.14.6")) {
				t.Errorf("%s: 1.14.6 is offered, which it withdraws", name)
			}
		}
	}

	if agent := <-agents; agent != "provider/test" {
		t.Errorf("asked as %q", agent)
	}
}

func TestTable_SaysWhyItIsNotRead(t *testing.T) {
	t.Parallel()

	silent := serving(t, hang)
	page := written(t, "<html>sign in</html>")
	large := written(t, strings.Repeat("# more and more\n", 1<<18)+"as-of 2096-12-01\n")

	for name, test := range map[string]struct {
		at   release.TableLocation
		kind error
		says string
	}{
		"no file":               {release.TableLocation{Location: page + ".old"}, release.ErrNotFound, page + ".old: not found"},
		"a directory":           {release.TableLocation{Location: filepath.Dir(page)}, release.ErrAnswer, "want a file"},
		"an endless file":       {release.TableLocation{Location: "/dev/zero"}, release.ErrAnswer, "want a file"},
		"a large file":          {release.TableLocation{Location: large}, release.ErrAnswer, "larger than 4 MiB"},
		"a page":                {release.TableLocation{Location: page}, compat.ErrTable, `line 1 begins with "<html>sign"`},
		"another file":          {release.TableLocation{Location: page, SHA256: sumOf(tableText)}, release.ErrAnswer, sumOf("<html>sign in</html>") + ", want " + sumOf(tableText)},
		"another answer":        {release.TableLocation{Location: serving(t, tells("other")), SHA256: sumOf(tableText)}, release.ErrAnswer, "its SHA-256 is"},
		"nothing there":         {release.TableLocation{Location: serving(t, http.NotFound), SHA256: sumOf(tableText)}, release.ErrNotFound, "404"},
		"no answer":             {release.TableLocation{Location: silent, SHA256: sumOf(tableText)}, release.ErrUnreachable, "no answer within 100ms"},
		"a wrong SHA256":        {release.TableLocation{Location: page, SHA256: "abc"}, release.ErrLocation, `"abc", want 64 hexadecimal digits`},
		"no SHA256":             {release.TableLocation{Location: silent}, release.ErrLocation, "may change between a plan and its apply"},
		"no location":           {release.TableLocation{}, release.ErrLocation, "empty"},
		"an address over http":  {release.TableLocation{Location: "http://example.com/a", SHA256: sumOf("")}, release.ErrLocation, "https URL"},
		"credentials in it":     {release.TableLocation{Location: "https://me:hunter2@example.com/a", SHA256: sumOf("")}, release.ErrLocation, "without credentials"},
		"a token in it":         {release.TableLocation{Location: "https://example.com/a?token=hunter2", SHA256: sumOf("")}, release.ErrLocation, "without credentials"},
		"an address without it": {release.TableLocation{Location: "https:///a", SHA256: sumOf("")}, release.ErrLocation, "https URL"},
	} {
		var options release.Options
		if test.at.Location == silent {
			options.Timeout = 100 * time.Millisecond
		}

		_, err := release.ReadTable(t.Context(), test.at, options)
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want %v that says %q", name, err, test.kind, test.says)
		}
	}

	interrupted, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := release.ReadTable(interrupted, release.TableLocation{Location: silent, SHA256: sumOf("")}, release.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
