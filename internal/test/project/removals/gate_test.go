// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// sources is Go as release lines have it: maps of specs, and of specs with versions.
const sources = `package features

const (
	Old featuregate.Feature = "Old"
	Kept = featuregate.Feature("KeptByName")
	Later featuregate.Feature = "Later"
)

var defaultFeatures = map[featuregate.Feature]featuregate.FeatureSpec{
	Old: {Default: true, PreRelease: featuregate.GA, LockToDefault: true}, // gone in 1.40
}

var defaultVersionedFeatures = map[featuregate.Feature]featuregate.VersionedSpecs{
	genericfeatures.Kept: {
		{Version: version.MustParse("1.30"), Default: false, PreRelease: featuregate.Alpha},
		{Version: version.MajorMinor(1, 36), Default: true, PreRelease: featuregate.GA, LockToDefault: true},
	},
	Later: {
		{Version: version.MustParse("1.36"), Default: false, PreRelease: featuregate.Alpha},
	},
}

var others = map[string]featuregate.FeatureSpec{"Other": {}}
`

func TestRead_GatesAreThoseOfTheReleaseLine(t *testing.T) {
	directory := t.TempDir()

	for name, text := range map[string]string{"features.go": sources, "features_test.go": "package features\n\nbroken"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for minor, want := range map[string]map[string]state{
		"1.35": {"Old": {locked: true, value: true}, "KeptByName": {}},
		"1.36": {"Old": {locked: true, value: true}, "KeptByName": {locked: true, value: true}, "Later": {}},
	} {
		if got, err := readGates([]string{directory}, minor); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", minor, got, err, want)
		}
	}

	unknown := strings.Replace(sources, `Later featuregate.Feature = "Later"`, "", 1)
	if err := os.WriteFile(filepath.Join(directory, "features.go"), []byte(unknown), 0o600); err != nil {
		t.Fatal(err)
	}

	if got, err := readGates([]string{directory}, "1.36"); err == nil {
		t.Errorf("a gate without a name: got %v", got)
	}
}

func TestWrite_ReleaseLinesAreJoinedWhereAGateStaysTheSame(t *testing.T) {
	var text bytes.Buffer

	free, locked := state{}, state{locked: true}

	err := write(&text, []line{
		{release: "1.34.4", gates: map[string]state{"A": free, "B": free}},
		{release: "1.35.4", gates: map[string]state{"A": free, "B": locked}},
		{release: "1.36.3", gates: map[string]state{"A": free}},
		{release: "1.37.2", gates: map[string]state{"B": free}},
	})
	if err != nil {
		t.Fatal(err)
	}

	const want = "release 1.34.4\nrelease 1.35.4\nrelease 1.36.3\nrelease 1.37.2\nA 1.34-1.36\nB 1.34-1.34\nB 1.35-1.35 false\nB 1.37-1.37\n"
	if got := text.String(); got != head+want {
		t.Errorf("got\n%s\nwant\n%s", got, head+want)
	}
}

// TestTable_IsWhatTheSourcesSay of the release that the tests run, whose sources are there.
func TestTable_IsWhatTheSourcesSay(t *testing.T) {
	toolchain.NeedKubernetes(t)

	pinned, err := os.ReadFile(filepath.FromSlash("../../../tools/kube/go.mod"))
	if err != nil {
		t.Fatal(err)
	}

	found := regexp.MustCompile(`k8s\.io/kubernetes v(1\.\d+\.\d+)`).FindSubmatch(pinned)
	if len(found) != 2 || !slices.Contains(releases(), string(found[1])) {
		t.Fatalf("the table is not made of the release that internal/tools/kube pins (%q): change releases(), and run make removals", found)
	}

	release := string(found[1])

	directories, err := download(release)
	if err != nil {
		t.Fatal(err)
	}

	gates, err := readGates(directories, minorOf(release))
	if err != nil {
		t.Fatal(err)
	}

	stored, err := os.ReadFile(filepath.FromSlash("../../../adapter/removal/gates.txt"))
	if err != nil {
		t.Fatal(err)
	}

	if got := storedOf(t, string(stored), minorOf(release)); !maps.Equal(got, gates) {
		t.Errorf("the table has %d gates of Kubernetes %s, and its sources %d; run make removals", len(got), release, len(gates))
	}
}

// storedOf are the gates of a release line in the table.
func storedOf(t *testing.T, table, minor string) map[string]state {
	t.Helper()

	gates := map[string]state{}

	for text := range strings.Lines(table) {
		fields := strings.Fields(text)
		if len(fields) < 2 || fields[0] == "#" || fields[0] == "release" {
			continue
		}

		first, last, _ := strings.Cut(fields[1], "-")
		if older(minor, first) || older(last, minor) {
			continue
		}

		gates[fields[0]] = state{locked: len(fields) > 2, value: len(fields) > 2 && fields[2] == "true"}
	}

	return gates
}
