// SPDX-License-Identifier: MPL-2.0

// Command releases adds new releases to the table of releases:
//
//	releases internal/compat/releases.txt factory
//
// Releases of Kubernetes are the tags of k8s.io/api, as the Go module proxy lists them; those of Talos come from the
// given source, in the form of release_source.talos, or from none. Nothing is removed from the table.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// noTalos is given instead of a source of Talos releases.
	noTalos = "none"
	// kubernetesTags is the module whose tags are the releases of Kubernetes, with 0 for 1.
	kubernetesTags = "k8s.io/api"
)

func main() {
	log.SetFlags(0)

	if len(os.Args) != 3 {
		log.Fatal("usage: releases <table> factory|oci://<repository>|none")
	}

	if err := run(context.Background(), os.Args[1], os.Args[2], time.Now()); err != nil {
		log.Fatal("releases: ", err)
	}
}

func run(ctx context.Context, file, from string, now time.Time) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}

	kubernetes, err := listKubernetes(ctx)
	if err != nil {
		return err
	}

	talos, day := []version.Version(nil), ""

	if from != noTalos {
		if talos, err = listTalos(ctx, from); err != nil {
			return err
		}

		// The day applies to both halves. A source that lacks a known release may lack more.
		lacks, err := unlisted(string(text), talos)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		if len(lacks) > 0 {
			log.Printf("releases: the day stays, because %s does not list Talos %s", from, lacks[0])
		} else {
			day = now.UTC().Format(time.DateOnly)
		}
	}

	extended, err := extend(string(text), day, map[version.Product][]version.Version{version.Talos: talos, version.Kubernetes: kubernetes})
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}

	return os.WriteFile(file, []byte(extended), 0o600)
}

// unlisted returns the releases of the newest minor of Talos in the table that are not listed.
func unlisted(text string, listed []version.Version) ([]version.Version, error) {
	table, err := compat.Read("", text)
	if err != nil {
		return nil, err
	}

	known := table.Releases(version.Talos)
	newest := version.Highest(known...).Minor()

	return slices.DeleteFunc(known, func(one version.Version) bool {
		return one.Minor() != newest || table.IsWithdrawn(one) || slices.ContainsFunc(listed, one.Equal)
	}), nil
}

func listTalos(ctx context.Context, from string) ([]version.Version, error) {
	source, err := release.New(version.Talos, from, release.Options{UserAgent: "terraform-provider-talosupgrade"})
	if err != nil {
		return nil, err
	}

	list, err := source.Versions(ctx)

	return list.Versions, err
}

// listKubernetes returns the stable releases of Kubernetes whose API is a module.
func listKubernetes(ctx context.Context) ([]version.Version, error) {
	var said bytes.Buffer

	command := exec.CommandContext(ctx, "go", "list", "-m", "-retracted", "-versions", kubernetesTags)
	command.Stderr = &said

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tags of %s: %w: %s", kubernetesTags, err, said.String())
	}

	var found []version.Version

	for _, tag := range strings.Fields(string(output)) {
		// v0.35.2 is Kubernetes 1.35.2. Tags from before that scheme are not releases.
		rest, modern := strings.CutPrefix(tag, "v0.")
		if !modern {
			continue
		}

		if parsed, err := version.Parse("1." + rest); err == nil && parsed.Equal(parsed.Core()) {
			found = append(found, parsed)
		}
	}

	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no tag of a release: %s", kubernetesTags, strings.TrimSpace(string(output)))
	}

	return found, nil
}

// extend adds releases to the table, each to the line of its minor, and unless day is empty, moves the day forward.
// Releases of minors before the first of the table are left out.
func extend(text, day string, released map[version.Product][]version.Version) (string, error) {
	table, err := compat.Read("", text)
	if err != nil {
		return "", err
	}

	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")

	if day > table.AsOf {
		lines[indexOf(lines, "as-of "+table.AsOf)] = "as-of " + day
	}

	for _, product := range []version.Product{version.Talos, version.Kubernetes} {
		known := table.Releases(product)

		for _, added := range sorted(released[product]) {
			if slices.ContainsFunc(known, added.Equal) || len(known) == 0 || added.Minor().Compare(known[0].Minor()) < 0 {
				continue
			}

			lines = add(lines, string(product), added)
		}
	}

	extended := strings.Join(lines, "\n") + "\n"

	// A table that lost something must never be written.
	after, err := compat.Read("", extended)
	if err != nil {
		return "", err
	}

	for _, product := range []version.Product{version.Talos, version.Kubernetes} {
		for _, before := range table.Releases(product) {
			if !slices.ContainsFunc(after.Releases(product), before.Equal) {
				return "", fmt.Errorf("%s %s would be lost", product.Name(), before)
			}
		}
	}

	return extended, nil
}

// add adds a release to the line of its minor, in order, or adds that line.
func add(lines []string, word string, added version.Version) []string {
	last := -1

	for index, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != word {
			continue
		}

		last = index

		if version.MustParse(fields[1]).Minor() == added.Minor() {
			releases := []version.Version{added}
			for _, field := range fields[1:] {
				releases = append(releases, version.MustParse(field))
			}

			lines[index] = word

			for _, one := range sorted(releases) {
				lines[index] += " " + one.String()
			}

			return lines
		}
	}

	return slices.Insert(lines, last+1, word+" "+added.String())
}

func sorted(versions []version.Version) []version.Version {
	return slices.SortedFunc(slices.Values(versions), version.Version.Compare)
}

func indexOf(lines []string, line string) int {
	return slices.IndexFunc(lines, func(one string) bool { return strings.TrimSpace(one) == line })
}
