// SPDX-License-Identifier: MPL-2.0

package project

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// TestFragmentsOfTheChangelogAreWellFormed wants the fragments to be what changie reads, and more: they may not have
// a field that it would silently ignore, and the body has to be one line of the changelog.
func TestFragmentsOfTheChangelogAreWellFormed(t *testing.T) {
	var config struct {
		Kinds []struct {
			Label string `yaml:"label"`
		} `yaml:"kinds"`
	}

	if err := yaml.Unmarshal(read(t, filepath.Join(root, ".changie.yaml")), &config); err != nil {
		t.Fatal(err)
	}

	var kinds []string
	for _, kind := range config.Kinds {
		kinds = append(kinds, kind.Label)
	}

	files, err := filepath.Glob(filepath.Join(root, ".changelog", "unreleased", "*"))
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		// Git keeps no directory that is empty.
		if filepath.Base(file) == ".gitkeep" {
			continue
		}

		if filepath.Ext(file) != ".yaml" {
			t.Errorf("%s is no fragment: their names end in .yaml", file)

			continue
		}

		for _, wrong := range fragmentFaults(read(t, file), kinds) {
			t.Errorf("%s: %s", filepath.Base(file), wrong)
		}
	}
}

func TestFaultsOfFragmentsAreFound(t *testing.T) {
	const good = "kind: FEATURES\nbody: 'provider: something that a user can notice.'\ntime: 2026-01-02T03:04:05Z\n"

	for name, test := range map[string]struct{ from, to, want string }{
		"good":             {},
		"unknown kind":     {"FEATURES", "NEWS", `kind "NEWS"`},
		"no kind":          {"kind: FEATURES\n", "", `kind ""`},
		"no time":          {"time: 2026-01-02T03:04:05Z\n", "", "no time"},
		"no full stop":     {"notice.", "notice", "full stop"},
		"several lines":    {"'provider: something that a user can notice.'", "|\n  One.\n  Two.", "one line"},
		"an unknown field": {"kind:", "issue: 7\nkind:", "issue"},
		"no YAML":          {"kind:", "kind", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(fragmentFaults([]byte(strings.Replace(good, test.from, test.to, 1)), []string{"FEATURES", "NOTES"}), "\n")
			if !strings.Contains(got, test.want) || (test.want == "") != (got == "") {
				t.Errorf("faults %q, wanted %q", got, test.want)
			}
		})
	}
}

func fragmentFaults(content []byte, kinds []string) []string {
	var fragment struct {
		Kind string    `yaml:"kind"`
		Body string    `yaml:"body"`
		Time time.Time `yaml:"time"`
	}

	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)

	if err := decoder.Decode(&fragment); err != nil {
		return []string{err.Error()}
	}

	var faults []string

	if !slices.Contains(kinds, fragment.Kind) {
		faults = append(faults, `kind "`+fragment.Kind+`" is none of `+strings.Join(kinds, ", "))
	}

	if fragment.Time.IsZero() {
		faults = append(faults, "no time, which orders them")
	}

	if strings.Contains(fragment.Body, "\n") {
		faults = append(faults, "the body is not one line")
	}

	if !strings.HasSuffix(strings.TrimSpace(fragment.Body), ".") {
		faults = append(faults, "the body does not end with a full stop")
	}

	return faults
}
