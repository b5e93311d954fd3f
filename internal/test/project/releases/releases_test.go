// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const before = `# What is known.
as-of 2026-10-01

talos 1.13.0 1.13.2
talos 1.14.0

kubernetes 1.35.0 1.35.1

stop 1.13.2 | withdrawn | was broken | Choose another. | x#1
`

func versions(texts ...string) []version.Version {
	parsed := make([]version.Version, len(texts))
	for i, text := range texts {
		parsed[i] = version.MustParse(text)
	}

	return parsed
}

func TestExtend_OnlyAdds(t *testing.T) {
	t.Parallel()

	got, err := extend(before, "2026-11-30", map[version.Product][]version.Version{
		// 1.13.2 was withdrawn; 1.12.9 is of a minor version that the table does not have on purpose.
		version.Talos:      versions("1.15.0", "1.14.1", "1.13.1", "1.14.0", "1.12.9", "1.15.1"),
		version.Kubernetes: versions("1.36.0"),
	})
	if err != nil {
		t.Fatal(err)
	}

	want := `# What is known.
as-of 2026-11-30

talos 1.13.0 1.13.1 1.13.2
talos 1.14.0 1.14.1
talos 1.15.0 1.15.1

kubernetes 1.35.0 1.35.1
kubernetes 1.36.0

stop 1.13.2 | withdrawn | was broken | Choose another. | x#1
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestExtend_KeepsTheDay(t *testing.T) {
	t.Parallel()

	for name, day := range map[string]string{"of one half": "", "of before": "2026-09-01"} {
		got, err := extend(before, day, map[version.Product][]version.Version{version.Kubernetes: versions("1.35.2")})
		if err != nil || !strings.Contains(got, "as-of 2026-10-01\n") || !strings.Contains(got, "kubernetes 1.35.0 1.35.1 1.35.2\n") {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}

	if got, err := extend("talos 1.13\n", "2026-11-30", nil); err == nil {
		t.Errorf("what is no table became %s", got)
	}
}

// TestRun_AsksBoth has a Go module proxy and a registry, which are fixtures. If one of them does not answer, the file
// has to stay as it is.
func TestRun_AsksBoth(t *testing.T) {
	proxy := t.TempDir()
	list := filepath.Join(proxy, "k8s.io", "api", "@v", "list")

	if err := os.MkdirAll(filepath.Dir(list), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(list, []byte("v0.36.0-rc.0\nv0.35.2\nv0.36.0\nv0.34.9\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GONOPROXY", "none")

	tags := `"v1.14.0", "v1.14.1", "v1.15.0-alpha.1", "latest"`
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		if strings.HasSuffix(req.URL.Path, "/tags/list") {
			_, _ = fmt.Fprintf(w, `{"name": "talos/installer", "tags": [%s]}`, tags)
		}
	}))
	t.Cleanup(registry.Close)

	file := filepath.Join(t.TempDir(), "releases.txt")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}

	today := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
	source := "oci://" + strings.TrimPrefix(registry.URL, "http://") + "/talos/installer"
	if err := run(t.Context(), file, source, today); err != nil {
		t.Fatal(err)
	}

	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	want := strings.NewReplacer(
		"as-of 2026-10-01", "as-of 2026-11-30",
		"talos 1.14.0", "talos 1.14.0 1.14.1",
		"kubernetes 1.35.0 1.35.1", "kubernetes 1.35.0 1.35.1 1.35.2\nkubernetes 1.36.0",
	).Replace(before)
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}

	// A source that lacks a known release may lack newer ones.
	tags = `"v1.13.3"`

	if err := run(t.Context(), file, source, today.AddDate(0, 1, 0)); err != nil {
		t.Fatal(err)
	}

	if got, err = os.ReadFile(file); err != nil || !strings.Contains(string(got), "as-of 2026-11-30\n") || !strings.Contains(string(got), "talos 1.13.0 1.13.2 1.13.3\n") {
		t.Errorf("of an old source: %v\n%s", err, got)
	}

	want = string(got)

	registry.Close()

	if err := run(t.Context(), file, source, today); err == nil || !strings.Contains(err.Error(), "unavailable") {
		t.Errorf("without a registry: %v", err)
	}

	if again, err := os.ReadFile(file); err != nil || string(again) != want {
		t.Errorf("the file changed: %v\n%s", err, again)
	}

	if err := run(t.Context(), file, "here", today); err == nil || !strings.Contains(err.Error(), "allowed are") {
		t.Errorf("from nowhere: %v", err)
	}
}
