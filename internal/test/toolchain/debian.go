// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// debianRelease is the release that the programs of a machine are from, whatever this machine runs: its tools
	// support XFS as Talos makes it.
	debianRelease = "trixie"
	// debianKeyring has the keys that the indexes of Debian are signed with.
	debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	debianMirror  = "http://deb.debian.org/debian/"
)

// useDebian makes apt-get take packages of [debianRelease] and its backports, from the
// mirror of Debian that this machine uses.
func (a aptDir) useDebian(ctx context.Context) (aptDir, error) {
	if _, err := os.Stat(debianKeyring); err != nil {
		return aptDir{}, fmt.Errorf("packages of Debian are verified with %s: install debian-archive-keyring: %w", debianKeyring, err)
	}

	// This uses the settings of this machine, not those of an empty directory.
	said, err := aptDir{dir: a.dir}.query(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return aptDir{}, err
	}

	mirror := debianMirror

	for line := range strings.Lines(said) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "Debian" && !strings.HasSuffix(fields[1], "-security") {
			mirror = fields[2]

			break
		}
	}

	var sources strings.Builder

	for _, suite := range []string{debianRelease, debianRelease + "-backports"} {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", debianKeyring, mirror, suite)
	}

	list := filepath.Join(a.dir, "sources.list")
	if err := os.WriteFile(list, []byte(sources.String()), 0o644); err != nil {
		return aptDir{}, fmt.Errorf("writing where packages come from: %w", err)
	}

	a.settings = append(slices.Clone(a.settings),
		"Dir::Etc::sourcelist="+list, "Dir::Etc::sourceparts=-", "APT::Default-Release="+debianRelease)

	return a, nil
}

// query returns what a program of apt prints.
func (a aptDir) query(ctx context.Context, program string, args ...string) (string, error) {
	var complaint bytes.Buffer

	command := a.command(ctx, program, args...)
	command.Stderr = &complaint

	said, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, args[0], err, &complaint)
	}

	return string(said), nil
}

func (a aptDir) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	var all []string

	for _, setting := range a.settings {
		all = append(all, "-o", setting)
	}

	command := exec.CommandContext(ctx, program, append(all, args...)...)
	command.Dir = a.dir
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")

	return command
}

// kernelPackage matches a kernel for virtual machines.
var kernelPackage = regexp.MustCompile(`^linux-image-((\d+)\.(\d+)\.(\d+)\+deb\d+-cloud-amd64)$`)

// kernel returns the packages of the newest kernel that Talos boots on: before 6.15, open_tree rejects the detached
// mounts on which machined keeps files of /etc. From 6.19 on the image and the modules of a kernel are in packages of
// their own. As long as there is an older kernel, it is preferred, because it has been tested.
func (a aptDir) kernel(ctx context.Context) ([]string, error) {
	said, err := a.query(ctx, "apt-cache", "pkgnames", "linux-")
	if err != nil {
		return nil, err
	}

	all := strings.Fields(said)
	oldest, split := [3]int{6, 15, 0}, [3]int{6, 19, 0}

	var whole, parts struct {
		release  [3]int
		packages []string
	}

	for _, name := range all {
		found := kernelPackage.FindStringSubmatch(name)
		if found == nil {
			continue
		}

		var release [3]int
		for i := range release {
			// The pattern matches only digits.
			release[i], _ = strconv.Atoi(found[i+2])
		}

		binary, modules := "linux-binary-"+found[1], "linux-modules-"+found[1]

		switch {
		case slices.Compare(release[:], oldest[:]) < 0:
		case slices.Compare(release[:], split[:]) < 0:
			if slices.Compare(release[:], whole.release[:]) > 0 {
				whole.release, whole.packages = release, []string{name}
			}
		case slices.Contains(all, binary) && slices.Contains(all, modules):
			if slices.Compare(release[:], parts.release[:]) > 0 {
				parts.release, parts.packages = release, []string{binary, modules}
			}
		}
	}

	if whole.packages != nil {
		return whole.packages, nil
	}

	if parts.packages != nil {
		return parts.packages, nil
	}

	return nil, errors.New("no package linux-image-*-cloud-amd64 of " + debianRelease + "-backports has a kernel from 6.15 on")
}
