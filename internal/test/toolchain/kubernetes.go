// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/mod/sumdb/dirhash"
)

// Binaries are paths of executables.
type Binaries struct {
	APIServer, ControllerManager, Etcd string
}

// RealKubernetes reports whether tests run programs of Kubernetes, which take minutes to build: whether
// TALOSUPGRADE_KUBERNETES is real. Otherwise they use the Kubernetes in memory, and those that need the programs are
// skipped.
func RealKubernetes() bool { return os.Getenv("TALOSUPGRADE_KUBERNETES") == "real" }

// Test is a test that can be skipped.
type Test interface {
	Helper()
	Skip(args ...any)
}

// NeedKubernetes skips a test that needs programs of Kubernetes if tests do not run them.
func NeedKubernetes(t Test) {
	t.Helper()

	if !RealKubernetes() {
		t.Skip("it needs programs of Kubernetes, which take minutes to build: make testacc runs it, with TALOSUPGRADE_KUBERNETES=real")
	}
}

// kubernetesPackages are those of the tool directives of internal/tools/kube that the simulator needs.
var kubernetesPackages = [...]string{
	"go.etcd.io/etcd/server/v3",
	"k8s.io/kubernetes/cmd/kube-apiserver",
	"k8s.io/kubernetes/cmd/kube-controller-manager",
}

// Kubernetes returns the binaries of a Kubernetes control plane for tests. The first
// call on a machine compiles them, which takes some minutes.
func Kubernetes(ctx context.Context, options Options) (Binaries, error) {
	dir, err := ensureModule(ctx, "kube", "kubernetes", options, func(ctx context.Context, module, dir string) error {
		return buildKubernetes(ctx, module, dir, options)
	})
	if err != nil {
		return Binaries{}, err
	}

	return binariesIn(dir), nil
}

func binariesIn(dir string) Binaries {
	return Binaries{
		APIServer:         filepath.Join(dir, executable("kube-apiserver")),
		ControllerManager: filepath.Join(dir, executable("kube-controller-manager")),
		Etcd:              filepath.Join(dir, executable("etcd")),
	}
}

// moduleKey returns a key that changes with everything that the binaries of a nested module depend on.
func moduleKey(ctx context.Context, module string) (string, error) {
	var parts [][]byte

	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("reading the module of what is to be built: %w", err)
		}

		parts = append(parts, content)
	}

	// The stubs of modules that are not published: go.mod has only their path.
	stubs, err := dirhash.HashDir(filepath.Join(module, "stub"), "", dirhash.DefaultHash)

	switch {
	case err == nil:
		parts = append(parts, []byte(stubs))
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("reading the stubs of what is to be built: %w", err)
	}

	command, err := goCommand(ctx, module, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}

	compiler, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("asking the go command for its version: %w", err)
	}

	return key(append(parts, bytes.TrimSpace(compiler))...), nil
}

func buildKubernetes(ctx context.Context, module, dir string, options Options) error {
	const what = "kube-apiserver, kube-controller-manager and etcd"

	err := build{
		dir:      module,
		output:   dir + string(filepath.Separator),
		packages: kubernetesPackages[:],
		what:     what,
	}.announced(ctx, options.progress(), "building "+what+" for the simulator: once, some minutes")
	if err != nil {
		return err
	}

	// The Go command names a binary after the last element of its package.
	err = os.Rename(filepath.Join(dir, executable("server")), filepath.Join(dir, executable("etcd")))
	if err != nil {
		return fmt.Errorf("naming the etcd binary: %w", err)
	}

	return nil
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}

	return name
}
