// SPDX-License-Identifier: MPL-2.0

// Command removals writes the table of the feature gates of Kubernetes, of one release of each
// release line, as its sources have them:
//
//	removals > internal/adapter/removal/gates.txt
//
// It downloads the sources as Go modules, and runs none of them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// releases are those that the table is made of, without "v": one of each release line that an
// upgrade can lead to. The modules of a release have its version, with 0 for 1.
func releases() []string {
	return []string{"1.29.6", "1.30.14", "1.31.14", "1.32.13", "1.33.13", "1.34.4", "1.35.4", "1.36.3", "1.37.2"}
}

// module is a module of Kubernetes, with the directories whose packages have feature gates that
// its components take.
type module struct {
	path string
	// staging tells that its versions begin with 0.
	staging     bool
	directories []string
}

func modules() []module {
	return []module{
		{path: "k8s.io/kubernetes", directories: []string{"pkg/features"}},
		{path: "k8s.io/apiserver", staging: true, directories: []string{"pkg/features"}},
		{path: "k8s.io/apiextensions-apiserver", staging: true, directories: []string{"pkg/features"}},
		{path: "k8s.io/client-go", staging: true, directories: []string{"features"}},
		{path: "k8s.io/component-base", staging: true, directories: []string{"featuregate", "logs/api/v1", "metrics/features", "tracing/features", "zpages/features"}},
		{path: "k8s.io/controller-manager", staging: true, directories: []string{"pkg/features"}},
	}
}

func (m module) at(release string) string {
	if m.staging {
		release = "0" + strings.TrimPrefix(release, "1")
	}

	return m.path + "@v" + release
}

func main() {
	log.SetFlags(0)

	if err := run(os.Stdout); err != nil {
		log.Fatal("removals: ", err)
	}
}

func run(to io.Writer) error {
	lines := make([]line, 0, len(releases()))

	for _, release := range releases() {
		sources, err := download(release)
		if err != nil {
			return err
		}

		found, err := readGates(sources, minorOf(release))
		if err != nil {
			return fmt.Errorf("kubernetes %s: %w", release, err)
		}

		lines = append(lines, line{release: release, gates: found})
	}

	return write(to, lines)
}

// download brings the sources of a release here, and names the directories that are looked at.
func download(release string) ([]string, error) {
	command := exec.Command("go", "mod", "download", "-json")
	for _, one := range modules() {
		command.Args = append(command.Args, one.at(release))
	}

	command.Stderr = os.Stderr

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kubernetes %s: go mod download: %w", release, err)
	}

	roots := map[string]string{}

	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var one struct{ Path, Dir, Error string }

		switch err := decoder.Decode(&one); {
		case errors.Is(err, io.EOF):
			return directories(roots)
		case err != nil:
			return nil, err
		case one.Error != "":
			return nil, fmt.Errorf("%s: %s", one.Path, one.Error)
		}

		roots[one.Path] = one.Dir
	}
}

// directories are those with feature gates, below the roots of the modules by their paths. A
// release line may have fewer of them.
func directories(roots map[string]string) ([]string, error) {
	var found []string

	for _, one := range modules() {
		root := roots[one.path]
		if root == "" {
			return nil, fmt.Errorf("there are no sources of %s", one.path)
		}

		for _, below := range one.directories {
			directory := filepath.Join(root, filepath.FromSlash(below))
			if _, err := os.Stat(directory); err == nil {
				found = append(found, directory)
			}
		}
	}

	return found, nil
}

// minorOf is the release line of a release, such as 1.36.
func minorOf(release string) string {
	return strings.Join(slices.Clip(strings.SplitN(release, ".", 3)[:2]), ".")
}
