// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	talosModule = "github.com/siderolabs/talos"
	// processRunner is the source file that starts processes in machined, such as containerd.
	processRunner = "internal/app/machined/pkg/system/runner/process/process.go"
)

// TalosBuild has what internal/tools/talos pins, from one build.
type TalosBuild struct {
	// Version is that of the module, such as v1.13.9.
	Version                     string
	Machined, Talosctl, Etcdutl string
	// Config is a directory with the files of Talos' source that a root file system
	// needs: containerd.toml, cri-containerd.toml, cri-plugin.part.
	Config string
}

// Talos returns machined, talosctl and etcdutl. The first call on a machine compiles them.
//
// Without the capability CAP_SYS_RESOURCE a process may not lower an OOM score, and machined then never starts
// containerd. A tolerant machined ignores that error, as it ignores a process that has already ended; nothing else
// differs.
func Talos(ctx context.Context, tolerant bool, options Options) (TalosBuild, error) {
	title := "talos"
	if tolerant {
		title = "talos-tolerant"
	}

	dir, err := ensureModule(ctx, "talos", title, options, func(ctx context.Context, module, dir string) error {
		return buildTalos(ctx, module, dir, tolerant, options)
	})
	if err != nil {
		return TalosBuild{}, err
	}

	release, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return TalosBuild{}, fmt.Errorf("reading which Talos was built: %w", err)
	}

	return TalosBuild{
		Version:  string(release),
		Machined: filepath.Join(dir, "machined"),
		Talosctl: filepath.Join(dir, "talosctl"),
		Etcdutl:  filepath.Join(dir, "etcdutl"),
		Config:   filepath.Join(dir, "config"),
	}, nil
}

func buildTalos(ctx context.Context, module, dir string, tolerant bool, options Options) error {
	release, source, err := moduleSource(ctx, module, talosModule)
	if err != nil {
		return err
	}

	if err := keepTalos(dir, release, source); err != nil {
		return err
	}

	flags := []string{"-tags", "grpcnotrace"}

	if tolerant {
		changed := filepath.Join(dir, "source")
		defer os.RemoveAll(changed)

		modfile, err := changeTalos(module, source, changed)
		if err != nil {
			return err
		}

		flags = append(flags, "-modfile", modfile)
	}

	return build{
		dir:      module,
		output:   dir + string(filepath.Separator),
		packages: []string{talosModule + "/internal/app/machined", talosModule + "/cmd/talosctl", "go.etcd.io/etcd/etcdutl/v3"},
		flags:    flags,
		// As in Talos' own build: the default is a directory that does not exist in its root file system.
		link: "-X golang.zx2c4.com/wireguard/ipc.socketDirectory=/system/wireguard-sock",
		what: "machined, talosctl and etcdutl of Talos " + release,
	}.announced(ctx, options.progress(), "building machined, talosctl and etcdutl of Talos "+release+" for real machines: once, some minutes")
}

// moduleSource returns the version of a module and the directory with its source, which is fetched if it is missing.
func moduleSource(ctx context.Context, module, path string) (release, dir string, err error) {
	said := ""

	for _, args := range [][]string{{"mod", "download", path}, {"list", "-m", "-f", "{{.Version}} {{.Dir}}", path}} {
		command, err := goCommand(ctx, module, args...)
		if err != nil {
			return "", "", err
		}

		var complaint bytes.Buffer

		command.Stderr = &complaint

		answer, err := command.Output()
		if err != nil {
			return "", "", fmt.Errorf("finding the source of %s: %w\n%s", path, err, &complaint)
		}

		said = string(answer)
	}

	release, dir, _ = strings.Cut(strings.TrimSpace(said), " ")

	return release, dir, nil
}

// keepTalos copies what is needed from the source beside the programs.
func keepTalos(dir, release, source string) error {
	config := filepath.Join(dir, "config")
	if err := os.Mkdir(config, 0o755); err != nil {
		return fmt.Errorf("creating the directory of Talos' configuration files: %w", err)
	}

	for _, name := range []string{"containerd.toml", "cri-containerd.toml", "cri-plugin.part"} {
		content, err := os.ReadFile(filepath.Join(source, "hack", name))
		if err != nil {
			return fmt.Errorf("reading a configuration file of Talos: %w", err)
		}

		if err := os.WriteFile(filepath.Join(config, name), content, 0o644); err != nil {
			return fmt.Errorf("keeping a configuration file of Talos: %w", err)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "version"), []byte(release), 0o644); err != nil {
		return fmt.Errorf("noting which Talos is built: %w", err)
	}

	return nil
}

// changeTalos copies the source, makes machined tolerant in it, and returns a go.mod that
// builds the copy in place of the module.
func changeTalos(module, source, changed string) (string, error) {
	if err := os.CopyFS(changed, os.DirFS(source)); err != nil {
		return "", fmt.Errorf("copying the source of Talos: %w", err)
	}

	path := filepath.Join(changed, filepath.FromSlash(processRunner))

	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading how machined starts processes: %w", err)
	}

	content, err = tolerate(content)
	if err != nil {
		return "", err
	}

	if err := os.WriteFile(path, content, 0o644); err != nil {
		return "", fmt.Errorf("changing how machined starts processes: %w", err)
	}

	return replaceModule(module, filepath.Join(changed, "tolerant.mod"), talosModule, changed)
}

// tolerate makes machined ignore that it may not lower an OOM score.
func tolerate(content []byte) ([]byte, error) {
	const (
		before = "pathError.Err != syscall.ENOENT {\n\t\t\t\treturn fmt.Errorf(\"failed to change OOMScoreAdj"
		after  = "pathError.Err != syscall.ENOENT && pathError.Err != syscall.EACCES {\n\t\t\t\treturn fmt.Errorf(\"failed to change OOMScoreAdj"
	)

	if bytes.Count(content, []byte(before)) != 1 {
		return nil, errors.New(processRunner + " of this Talos lowers the OOM score in another way: " +
			"adapt tolerate in internal/test/toolchain/talos.go, or run with CAP_SYS_RESOURCE")
	}

	return bytes.Replace(content, []byte(before), []byte(after), 1), nil
}
