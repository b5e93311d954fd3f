// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// helper makes docker ask a helper for the credentials of the registry: the
// script, which reads the question from its input. It returns the directory
// that the script runs in.
func helper(t *testing.T, script string, registries ...string) string {
	t.Helper()

	if runtime.GOOS == "windows" {
		t.Skip("the helper is a shell script")
	}

	dir := t.TempDir()
	text := "#!/bin/sh\ncd " + dir + "\necho started >> starts\n" + script + "\n"

	if err := os.WriteFile(filepath.Join(dir, "docker-credential-fake"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	helped(t, "fake", registries...)

	return dir
}

// helped writes a configuration of docker in which the helper of that name has
// the credentials of the registries.
func helped(t *testing.T, name string, registries ...string) {
	t.Helper()

	dir := t.TempDir()
	quoted := make([]string, 0, len(registries))

	for _, registry := range registries {
		quoted = append(quoted, fmt.Sprintf("%q: %q", registry, name))
	}

	content := `{"credHelpers": {` + strings.Join(quoted, ", ") + `}}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("HOME", dir)
	t.Setenv("DOCKER_CONFIG", dir)
}

// hangs is a helper that answers when the test ends.
func hangs(t *testing.T, registries ...string) (dir string) {
	t.Helper()

	dir = helper(t, `while [ ! -e end ]; do sleep 0.05; done; echo '{"Username": "reader", "Secret": "s3cret"}'; echo ended >> ends`, registries...)

	t.Cleanup(func() {
		if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
			t.Error(err)
		}

		// What hangs was left behind, and its directory goes away.
		for limit := time.After(10 * time.Second); lines(dir, "ends") < lines(dir, "starts"); {
			select {
			case <-limit:
				t.Error("a helper goes on")

				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})

	return dir
}

// lines counts those of a file in the directory.
func lines(dir, name string) int {
	text, _ := os.ReadFile(filepath.Join(dir, name))

	return strings.Count(string(text), "\n")
}

func registryOf(repository string) string {
	registry, _, _ := strings.Cut(strings.TrimPrefix(repository, release.OCI), "/")

	return registry
}

const answering = `echo '{"Username": "reader", "Secret": "s3cret"}'`

func TestKeychain_CredentialsComeFromAHelper(t *testing.T) {
	repository := newImage(t, basic)
	helper(t, answering, registryOf(repository))

	if err := release.NewRegistry(release.Options{}).Image(t.Context(), repository+":v1.13.4"); err != nil {
		t.Error(err)
	}

	if got := texts(t, open(t, version.Talos, release.OCI+repository, release.Options{})); got != "[1.13.4]" {
		t.Errorf("got %s", got)
	}
}

func TestKeychain_FailingHelperLeavesAPublicRegistryOpen(t *testing.T) {
	public, private := newImage(t, unguarded), newImage(t, basic)

	for name, test := range map[string]struct{ script, says string }{
		"it fails":          {"echo s3cret-out; echo s3cret-err >&2; exit 1", "credential helper of docker failed"},
		"it talks nonsense": {"echo s3cret-out", "credentials of docker or podman cannot be read"},
		"it is missing":     {"", "credential helper of docker is not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.script == "" {
				helped(t, "nobody", registryOf(public), registryOf(private))
			} else {
				helper(t, test.script, registryOf(public), registryOf(private))
			}

			registry := release.NewRegistry(release.Options{})

			if err := registry.Image(t.Context(), public+":v1.13.4"); err != nil {
				t.Errorf("a public registry: %v", err)
			}

			err := registry.Image(t.Context(), private+":v1.13.4")
			missing(t, err, cluster.ErrDenied, test.says, "no credentials were used")

			_, listing := open(t, version.Talos, release.OCI+private, release.Options{}).Versions(t.Context())
			if !errors.Is(listing, release.ErrDenied) || !strings.Contains(listing.Error(), test.says) {
				t.Errorf("a list: %v", listing)
			}

			if text := fmt.Sprint(err, listing); strings.Contains(text, "s3cret") {
				t.Errorf("%s repeats what the helper printed", text)
			}
		})
	}
}

func TestKeychain_HangingHelperKeepsNobodyWaiting(t *testing.T) {
	public, private, other := newImage(t, unguarded), newImage(t, basic), newImage(t, unguarded)
	dir := hangs(t, registryOf(public), registryOf(private))
	registry := release.NewRegistry(release.Options{Timeout: 10 * time.Second})
	started := time.Now()

	var group sync.WaitGroup

	for range 4 {
		group.Go(func() {
			if err := registry.Image(t.Context(), public+":v1.13.4"); err != nil {
				t.Errorf("a public registry: %v", err)
			}

			if err := registry.Image(t.Context(), public+"/nobody:v1.13.4"); !errors.Is(err, cluster.ErrUnreachable) {
				// What is private does not exist for those without credentials.
				t.Errorf("another repository there: %v", err)
			}
		})
		group.Go(func() {
			missing(t, registry.Image(t.Context(), private+":v1.13.4"), cluster.ErrDenied, "credential helper of docker did not answer within 5s")
		})
		group.Go(func() {
			begun := time.Now()

			if err := registry.Image(t.Context(), other+":v1.13.4"); err != nil || time.Since(begun) > 4*time.Second {
				t.Errorf("a registry without a helper: %v after %s", err, time.Since(begun))
			}
		})
	}

	group.Wait()

	if took := time.Since(started); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}

	if got := lines(dir, "starts"); got != 2 {
		t.Errorf("%d helpers hang, want one for each registry", got)
	}

	source := open(t, version.Talos, release.OCI+public, release.Options{Timeout: 2 * time.Second})
	if got := texts(t, source); got != "[1.13.4]" {
		t.Errorf("a list: %s", got)
	}
}

func TestKeychain_CallerWhoStopsDoesNotWaitForAHelper(t *testing.T) {
	repository := newImage(t, unguarded)
	dir := hangs(t, registryOf(repository))
	stopped := errors.New("stopped by hand")

	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)

	begun := time.Now()
	result := make(chan error, 1)

	go func() {
		result <- release.NewRegistry(release.Options{Timeout: time.Minute}).Image(ctx, repository+":v1.13.4")
	}()

	for lines(dir, "starts") == 0 && time.Since(begun) < 10*time.Second {
		<-time.After(5 * time.Millisecond)
	}

	cancel(stopped)

	if err := <-result; !errors.Is(err, stopped) {
		t.Errorf("got %v, want %v", err, stopped)
	}

	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestKeychain_HelperThatRecoversIsAskedAgain(t *testing.T) {
	repository := newImage(t, basic)
	dir := helper(t, "[ -e fit ] || exit 1\n"+answering, registryOf(repository))
	registry := release.NewRegistry(release.Options{})

	missing(t, registry.Image(t.Context(), repository+":v1.13.4"), cluster.ErrDenied, "credential helper of docker failed")

	if err := os.WriteFile(filepath.Join(dir, "fit"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := registry.Image(t.Context(), repository+":v1.13.4"); err != nil {
		t.Error(err)
	}
}
