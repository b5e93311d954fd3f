// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// sources is Go code in the forms of several minor versions: maps of specs, and of specs with versions.
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

	err := writeGates(&text, []line{
		{release: "1.34.4", gates: map[string]state{"A": free, "B": free}},
		{release: "1.35.4", gates: map[string]state{"A": free, "B": locked}},
		{release: "1.36.3", gates: map[string]state{"A": free}},
		{release: "1.37.2", gates: map[string]state{"B": free}},
	})
	if err != nil {
		t.Fatal(err)
	}

	const want = "release 1.34.4\nrelease 1.35.4\nrelease 1.36.3\nrelease 1.37.2\nA 1.34-1.36\nB 1.34-1.34\nB 1.35-1.35 false\nB 1.37-1.37\n"
	if got := text.String(); got != gateHead+want {
		t.Errorf("got\n%s\nwant\n%s", got, gateHead+want)
	}
}

func TestRead_FlagsAreThoseThatTheSourcesDefine(t *testing.T) {
	const text = `package options

const namedFlag = "by-constant"

func add(fs, global, local *pflag.FlagSet) {
	fs.StringVar(&s.Name, "plain", "", "usage mentions --other")
	fs.StringSliceVarP(&s.Names, "short", "s", nil, "usage")
	fs.Var(value, namedFlag, "usage")
	fs.Int32(options.Elsewhere, 3, "usage")
	fs.Duration("under_score", 0, "usage")
	register(global, local, "of_a_library")
	fs.MarkDeprecated("only-mentioned", "usage")
	fs.StringVar(&s.Name, prefix+"made-up", "", "usage")
	fmt.Printf("some-text", a, b)
}
`

	directory := t.TempDir()
	below := filepath.Join(directory, "below")

	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{
		filepath.Join(below, "options.go"):      text,
		filepath.Join(below, "options_test.go"): "package options\n\nbroken",
		filepath.Join(directory, "names.go"):    "package options\n\nconst Elsewhere = \"elsewhere\"",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	got, err := readFlags([]string{directory})
	want := []string{"by-constant", "elsewhere", "of-a-library", "plain", "short", "under-score"}

	if found := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(found, want) {
		t.Errorf("got %q, %v, want %q", found, err, want)
	}

	if got, err := readFlags([]string{t.TempDir()}); err == nil {
		t.Errorf("no sources: got %v", got)
	}
}

func TestWrite_FlagsThatAreGoneHaveTheirLastReleaseLine(t *testing.T) {
	var text bytes.Buffer

	flags := func(names ...string) map[string]map[string]bool {
		set := map[string]bool{}
		for _, name := range names {
			set[name] = true
		}

		return map[string]map[string]bool{"kubelet": set, "kube-proxy": {"v": true}}
	}

	err := writeFlags(&text, []line{
		{release: "1.35.4", flags: flags("a", "b", "back", "kept")},
		{release: "1.36.3", flags: flags("b", "kept")},
		{release: "1.37.2", flags: flags("back", "kept", "new")},
	})

	const want = "release 1.35.4\nrelease 1.36.3\nrelease 1.37.2\nkubelet a 1.35\nkubelet b 1.36\n"
	if got := text.String(); err != nil || got != flagHead+want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, flagHead+want)
	}
}

// TestTables_AreWhatTheSourcesSay compares the tables with the release that the tests run, whose sources are
// available.
func TestTables_AreWhatTheSourcesSay(t *testing.T) {
	toolchain.NeedKubernetes(t)

	pinned, err := os.ReadFile(filepath.FromSlash("../../../tools/kube/go.mod"))
	if err != nil {
		t.Fatal(err)
	}

	found := regexp.MustCompile(`k8s\.io/kubernetes v(1\.\d+\.\d+)`).FindSubmatch(pinned)
	if len(found) != 2 || !slices.Contains(releases(), string(found[1])) {
		t.Fatalf("the tables are not made of the release that internal/tools/kube pins (%q): change releases(), and run make removals", found)
	}

	got, err := read(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}

	minor := minorOf(got.release)

	if stored := storedOf(t, table(t, "gates.txt"), minor); !maps.Equal(stored, got.gates) {
		t.Errorf("the table has %d gates of Kubernetes %s, and its sources %d; run make removals", len(stored), got.release, len(got.gates))
	}

	programs := helpOfPrograms(t)

	for text := range strings.Lines(table(t, "flags.txt")) {
		fields := strings.Fields(text)
		if fields[0] == "#" || fields[0] == "release" {
			continue
		}

		component, name, gone := fields[0], fields[1], older(fields[2], minor)

		if got.flags[component][name] == gone {
			t.Errorf("the table has the flag %s of %s up to Kubernetes %s, and the sources of %s do not agree; run make removals", name, component, fields[2], got.release)
		}

		if help := programs[component]; gone && strings.Contains(help, "--"+name+" ") {
			t.Errorf("%s %s has the flag %s, and the table none after %s", component, got.release, name, fields[2])
		}
	}
}

// helpOfPrograms returns the help about flags of the programs of the release that the tests run.
func helpOfPrograms(t *testing.T) map[string]string {
	t.Helper()

	programs, err := toolchain.Kubernetes(t.Context(), toolchain.Options{})
	if err != nil {
		t.Fatal(err)
	}

	help := map[string]string{}

	for component, program := range map[string]string{"kube-apiserver": programs.APIServer, "kube-controller-manager": programs.ControllerManager} {
		output, err := exec.CommandContext(t.Context(), program, "--help").Output()
		if err != nil || !strings.Contains(string(output), "--feature-gates ") {
			t.Fatalf("%s --help: %v\n%s", component, err, output)
		}

		help[component] = string(output)
	}

	return help
}

// table returns one of the stored tables.
func table(t *testing.T, name string) string {
	t.Helper()

	stored, err := os.ReadFile(filepath.Join("..", "..", "..", "adapter", "removal", name))
	if err != nil {
		t.Fatal(err)
	}

	return string(stored)
}

// storedOf returns the gates of a minor version in the table.
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
