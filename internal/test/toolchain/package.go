// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// machinePackages are packages of Debian or Ubuntu with what a real machine runs and what no Go module has.
var machinePackages = [...]string{"runc", "containernetworking-plugins", "kmod", "mount"}

// packagesRecipe has to change if packages are fetched or unpacked in another way.
const packagesRecipe = "2"

// MachinePackages returns a directory with the files of runc, the CNI plugins, modprobe and mount, and of the
// libraries that they need. They are fetched with apt-get from the sources of this machine, and unpacked; nothing is
// installed.
func MachinePackages(ctx context.Context, options Options) (string, error) {
	return packagesOf(ctx, "packages", machinePackages[:], options, func(ctx context.Context, apt aptDir, dir string) error {
		return apt.fetch(ctx, dir, machinePackages[:], keepPrograms[:])
	})
}

// packagesOf returns a directory of the cache, named after the title, with what fill unpacks from packages.
func packagesOf(
	ctx context.Context, title string, packages []string, options Options, fill func(ctx context.Context, apt aptDir, dir string) error,
) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}

	// What is fetched for one release of this machine's system may not run on the next.
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("reading which packages this machine has: %w", err)
	}

	name := title + "-" + key([]byte(strings.Join(packages, " ")), []byte(runtime.GOARCH), []byte(packagesRecipe), []byte(debianRelease), release)

	return entry{cache: cache, name: name}.ensure(ctx, options.progress(), func(ctx context.Context, dir string) error {
		started := time.Now()

		fmt.Fprintf(options.progress(), "fetching the packages %s and what they need: once, some seconds\n", strings.Join(packages, ", "))

		apt, err := newAptDir(filepath.Join(dir, ".apt"))
		if err != nil {
			return err
		}
		defer os.RemoveAll(apt.dir)

		if err := fill(ctx, apt, dir); err != nil {
			return err
		}

		fmt.Fprintf(options.progress(), "fetched them in %s\n", time.Since(started).Round(time.Second))

		return nil
	})
}

// aptDir is the state of a system on which nothing is installed, so that apt-get fetches every dependency and changes
// nothing on this machine.
type aptDir struct {
	dir      string
	settings []string
}

func newAptDir(dir string) (aptDir, error) {
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return aptDir{}, fmt.Errorf("creating the directories of apt-get: %w", err)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "state", "status"), nil, 0o644); err != nil {
		return aptDir{}, fmt.Errorf("creating the state of apt-get: %w", err)
	}

	return aptDir{dir: dir, settings: []string{
		"Dir::State=" + filepath.Join(dir, "state"),
		"Dir::State::status=" + filepath.Join(dir, "state", "status"),
		"Dir::Cache=" + filepath.Join(dir, "cache"),
		"APT::Sandbox::User=root", "APT::Install-Recommends=false", "Acquire::Retries=3",
	}}, nil
}

// fetch unpacks the kept files of the packages, and of everything that they need, below target.
func (a aptDir) fetch(ctx context.Context, target string, packages, kept []string) error {
	if err := a.run(ctx, "update"); err != nil {
		return err
	}

	if err := a.run(ctx, append([]string{"--yes", "--download-only", "install"}, packages...)...); err != nil {
		return err
	}

	return a.unpack(ctx, filepath.Join(a.dir, "cache", "archives"), target, kept)
}

// unpack unpacks the kept files of all packages in a directory.
func (a aptDir) unpack(ctx context.Context, from, target string, kept []string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.deb"))
	if err != nil {
		return fmt.Errorf("listing the packages: %w", err)
	}

	for _, file := range files {
		if err := unpackPackage(ctx, file, target, kept); err != nil {
			return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
		}
	}

	return nil
}

func (a aptDir) run(ctx context.Context, args ...string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("apt-get is not on PATH: real machines take runc and mount from packages of Debian or Ubuntu")
	}

	command := a.command(ctx, "apt-get", args...)
	command.WaitDelay = time.Second

	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, said)
	}

	return nil
}

// unpackPackage writes the files of a package below dir: programs to usr/bin and libraries to usr/lib, as on systems
// with a merged /usr, whatever the package says.
func unpackPackage(ctx context.Context, file, dir string, kept []string) error {
	var complaint bytes.Buffer

	command := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	command.Stderr = &complaint
	command.WaitDelay = time.Second

	output, err := command.StdoutPipe()
	if err != nil {
		return fmt.Errorf("preparing dpkg-deb: %w", err)
	}

	if err := command.Start(); err != nil {
		return fmt.Errorf("starting dpkg-deb: %w", err)
	}

	unpacking := unpack(tar.NewReader(output), dir, kept)

	// Output that is not read after an error would keep dpkg-deb from ending.
	_, _ = io.Copy(io.Discard, output)

	if err := command.Wait(); err != nil {
		return fmt.Errorf("dpkg-deb: %w\n%s", err, &complaint)
	}

	return unpacking
}

func unpack(archive *tar.Reader, dir string, kept []string) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}

		name, wanted := merged(header.Name, kept)
		if !wanted {
			continue
		}

		target := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}

		switch header.Typeflag {
		case tar.TypeReg:
			err = unpackFile(target, header.FileInfo().Mode(), archive)
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, target)
		case tar.TypeLink:
			from, _ := merged(header.Linkname, kept)
			err = os.Link(filepath.Join(dir, filepath.FromSlash(from)), target)
		}

		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

func unpackFile(path string, mode fs.FileMode, content io.Reader) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode.Perm())
	if err != nil {
		return err
	}

	_, err = io.Copy(file, content)

	return errors.Join(err, file.Close())
}

// keepPrograms selects programs and what they need, without documentation.
var keepPrograms = [...]string{"usr/bin/", "usr/lib/", "usr/lib64/"}

// merged returns where a file of a package goes, and reports whether a machine needs it.
func merged(name string, kept []string) (string, bool) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")

	for _, move := range [][2]string{
		{"bin/", "usr/bin/"}, {"sbin/", "usr/bin/"}, {"usr/sbin/", "usr/bin/"}, {"lib/", "usr/lib/"}, {"lib64/", "usr/lib64/"},
	} {
		if rest, found := strings.CutPrefix(name, move[0]); found {
			name = move[1] + rest

			break
		}
	}

	for _, prefix := range kept {
		if strings.HasPrefix(name, prefix) {
			return name, true
		}
	}

	return "", false
}
