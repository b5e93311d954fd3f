// SPDX-License-Identifier: MPL-2.0

// Command removals writes the tables of the feature gates of Kubernetes and of the removed flags, from the sources of
// one release of each minor version:
//
//	removals internal/adapter/removal
//
// It downloads the sources as Go modules, and does not run them.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// releases returns the releases that the tables are made from, without "v": one of each minor version that an upgrade
// can lead to. The modules of a release have its version, with 0 for 1.
func releases() []string {
	return []string{"1.29.6", "1.30.14", "1.31.14", "1.32.13", "1.33.13", "1.34.4", "1.35.4", "1.36.3", "1.37.2"}
}

const (
	// kubernetesModule has the version of the release; the other modules of Kubernetes have it with 0 for 1.
	kubernetesModule = "k8s.io/kubernetes"
	// cadvisorModule has flags of the kubelet. From 1.37 on a release requires it, in a version of its own.
	cadvisorModule = "github.com/google/cadvisor/lib"
)

// gateDirectories returns the directories, by module, whose packages have feature gates of components.
func gateDirectories() map[string][]string {
	return map[string][]string{
		kubernetesModule:                 {"pkg/features"},
		"k8s.io/apiserver":               {"pkg/features"},
		"k8s.io/apiextensions-apiserver": {"pkg/features"},
		"k8s.io/client-go":               {"features"},
		"k8s.io/component-base":          {"featuregate", "logs/api/v1", "metrics/features", "tracing/features", "zpages/features"},
		"k8s.io/controller-manager":      {"pkg/features"},
	}
}

func main() {
	log.SetFlags(0)

	if len(os.Args) != 2 {
		log.Fatal("usage: removals <directory>")
	}

	if err := run(os.Args[1]); err != nil {
		log.Fatal("removals: ", err)
	}
}

func run(to string) error {
	lines := make([]line, 0, len(releases()))

	for _, release := range releases() {
		found, err := read(release)
		if err != nil {
			return fmt.Errorf("kubernetes %s: %w", release, err)
		}

		lines = append(lines, found)
	}

	// A file is written as a whole, or not at all.
	for name, write := range map[string]func(io.Writer, []line) error{"gates.txt": writeGates, "flags.txt": writeFlags} {
		var text bytes.Buffer
		if err := write(&text, lines); err != nil {
			return err
		}

		if err := os.WriteFile(filepath.Join(to, name), text.Bytes(), 0o600); err != nil {
			return err
		}
	}

	return nil
}

// read downloads the sources of a release, and reads its gates and flags.
func read(release string) (found line, err error) {
	roots, err := download(release)
	if err != nil {
		return found, err
	}

	found = line{release: release, flags: map[string]map[string]bool{}}

	directories, err := below(roots, gateDirectories())
	if err != nil {
		return found, err
	}

	if found.gates, err = readGates(directories, minorOf(release)); err != nil {
		return found, err
	}

	for _, one := range commandLines() {
		directories, err := below(roots, one.directories)
		if err != nil {
			return found, err
		}

		if found.flags[one.component], err = readFlags(directories); err != nil {
			return found, err
		}
	}

	return found, nil
}

// download downloads the sources of a release and returns their roots by module.
func download(release string) (map[string]string, error) {
	modules := map[string]bool{}

	for _, directories := range append([]map[string][]string{gateDirectories()}, directoriesOf(commandLines())...) {
		for module := range directories {
			modules[module] = module != cadvisorModule
		}
	}

	var wanted []string

	for _, module := range slices.Sorted(maps.Keys(modules)) {
		switch {
		case module == kubernetesModule:
			wanted = append(wanted, module+"@v"+release)
		case modules[module]:
			wanted = append(wanted, module+"@v0"+strings.TrimPrefix(release, "1"))
		}
	}

	roots, err := fetch(wanted)
	if err != nil {
		return nil, err
	}

	pinned, err := os.ReadFile(filepath.Join(roots[kubernetesModule], "go.mod"))
	if err != nil {
		return nil, err
	}

	version := regexp.MustCompile(regexp.QuoteMeta(cadvisorModule) + ` (v\S+)`).FindSubmatch(pinned)
	if version == nil {
		return roots, nil
	}

	more, err := fetch([]string{cadvisorModule + "@" + string(version[1])})
	maps.Copy(roots, more)

	return roots, err
}

func directoriesOf(lines []commandLine) []map[string][]string {
	all := make([]map[string][]string, 0, len(lines))
	for _, one := range lines {
		all = append(all, one.directories)
	}

	return all
}

// fetch downloads modules, each with its version, and returns their roots by module.
func fetch(modules []string) (map[string]string, error) {
	command := exec.Command("go", append([]string{"mod", "download", "-json"}, modules...)...)
	command.Stderr = os.Stderr

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}

	roots := map[string]string{}

	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var one struct{ Path, Dir, Error string }

		switch err := decoder.Decode(&one); {
		case errors.Is(err, io.EOF):
			return roots, nil
		case err != nil:
			return nil, err
		case one.Error != "":
			return nil, fmt.Errorf("%s: %s", one.Path, one.Error)
		}

		roots[one.Path] = one.Dir
	}
}

// below returns the directories, by module, that a minor version has. It may lack some, but not the first one of
// Kubernetes itself.
func below(roots map[string]string, directories map[string][]string) ([]string, error) {
	var found []string

	for _, module := range slices.Sorted(maps.Keys(directories)) {
		for index, name := range directories[module] {
			directory := filepath.Join(roots[module], filepath.FromSlash(name))

			_, err := os.Stat(directory)

			switch {
			case roots[module] != "" && err == nil:
				found = append(found, directory)
			case index == 0 && module == kubernetesModule:
				return nil, fmt.Errorf("there is no directory %s of %s", name, module)
			}
		}
	}

	return found, nil
}

// minorOf returns the minor version of a release, such as 1.36.
func minorOf(release string) string {
	return strings.Join(slices.Clip(strings.SplitN(release, ".", 3)[:2]), ".")
}
