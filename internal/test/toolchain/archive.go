// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// Platform is an operating system and an architecture, as Go names them.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "_" + p.Arch }

// environment returns the variables that make the Go command compile for the platform.
func (p Platform) environment() []string {
	if p == (Platform{}) {
		return nil
	}

	return []string{"GOOS=" + p.OS, "GOARCH=" + p.Arch}
}

// archive is the directory of an unpacked archive of the demo; empty if there is none. It has everything that is
// otherwise built or found elsewhere.
type archive string

// The directories in an archive; demo and talossim are beside them.
const (
	archiveProvider      = "provider"
	archiveConfiguration = "examples/demo"
)

// ownArchive returns the archive that the running program is from.
func ownArchive() archive {
	program, err := os.Executable()
	if err != nil {
		return ""
	}

	return archiveOf(program)
}

// archiveOf returns the archive that a program is from: the directory of the program, if the provider is in it. A
// link to the program is followed.
func archiveOf(program string) archive {
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return ""
	}

	unpacked := archive(filepath.Dir(program))

	info, err := os.Stat(filepath.Join(unpacked.provider(), providerName))
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}

	return unpacked
}

func (a archive) provider() string { return filepath.Join(string(a), archiveProvider) }

// Demo has the paths of what the demo reads but does not build, and of what it writes.
type Demo struct {
	// Configuration is a directory, Report a file.
	Configuration, Report string
}

// DemoPlaces returns the paths in the unpacked archive that the running program is from, with the report in the
// working directory, or otherwise those in the source tree.
func DemoPlaces() (Demo, error) {
	if unpacked := ownArchive(); unpacked != "" {
		report, err := filepath.Abs("upgrade.html")
		if err != nil {
			return Demo{}, fmt.Errorf("finding the working directory: %w", err)
		}

		return Demo{
			Configuration: filepath.Join(string(unpacked), filepath.FromSlash(archiveConfiguration)),
			Report:        report,
		}, nil
	}

	root, err := ModuleRoot()
	if err != nil {
		return Demo{}, err
	}

	return Demo{
		Configuration: filepath.Join(root, filepath.FromSlash(archiveConfiguration)),
		Report:        filepath.Join(root, "bin", "demo", "upgrade.html"),
	}, nil
}

// demoPackages are the programs of the demo.
var demoPackages = [...]string{"./internal/test/sim/cmd/demo", "./internal/test/sim/cmd/talossim"}

// BuildDemo compiles the demo and the simulator into one directory, and returns the path of the demo.
func BuildDemo(ctx context.Context, options Options) (string, error) {
	root, cache, err := places()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(cache, "bin")
	made := build{dir: root, output: dir + string(filepath.Separator), packages: demoPackages[:], what: "the demo and the simulator"}

	return filepath.Join(dir, executable("demo")), made.run(ctx, options.progress())
}

// ArchiveFiles builds the files of an archive of the demo for a platform, with a provider of the given version. It
// returns the path of each file by its name in the archive.
func ArchiveFiles(ctx context.Context, target Platform, version string, options Options) (map[string]string, error) {
	root, cache, err := places()
	if err != nil {
		return nil, err
	}

	programs := filepath.Join(cache, "archive-"+target.String())
	provider := filepath.Join(programs, archiveProvider, providerName)

	if err := os.MkdirAll(filepath.Dir(provider), 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory of the programs: %w", err)
	}

	for _, made := range []build{
		{
			output:   programs + string(filepath.Separator),
			packages: demoPackages[:],
			what:     "the demo and the simulator for " + target.String(),
		},
		// Built as a release builds it: the bytes are the same.
		{output: provider, packages: []string{"."}, link: "-X main.version=" + version, what: "the provider for " + target.String()},
	} {
		made.dir, made.target = root, target
		// The programs know their commit, whatever the environment says.
		made.flags = []string{"-buildvcs=true"}

		if err := made.announced(ctx, options.progress(), "building "+made.what); err != nil {
			return nil, err
		}
	}

	return map[string]string{
		"demo":                                   filepath.Join(programs, "demo"),
		"talossim":                               filepath.Join(programs, "talossim"),
		path.Join(archiveProvider, providerName): provider,
		archiveConfiguration + "/main.tf":        filepath.Join(root, filepath.FromSlash(archiveConfiguration), "main.tf"),
		"LICENSE":                                filepath.Join(root, "LICENSE"),
	}, nil
}
