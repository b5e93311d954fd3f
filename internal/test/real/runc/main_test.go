// SPDX-License-Identifier: MPL-2.0

//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
)

const (
	before = `{"ociVersion":"1.2.0","process":{"args":["a"],"oomScoreAdj":-998,"rlimits":[{"type":"RLIMIT_NOFILE","hard":1048576}],` +
		`"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE","CAP_KILL"]}},"linux":{"resources":{"memory":{"limit":9223372036854771712}}}}`
	after = `{"linux":{"resources":{"memory":{"limit":9223372036854771712}}},"ociVersion":"1.2.0",` +
		`"process":{"args":["a"],"capabilities":{"bounding":["CAP_CHOWN","CAP_KILL"]}}}`
)

func TestContainerLosesWhatNeedsTheCapability(t *testing.T) {
	for name, arguments := range map[string]func(dir string) []string{
		"apart": func(dir string) []string {
			return []string{"--root", "/run", "create", "--bundle", dir, "--pid-file", "p", "id"}
		},
		"attached": func(dir string) []string { return []string{"create", "--bundle=" + dir, "id"} },
		"short":    func(dir string) []string { return []string{"run", "-b", dir, "id"} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "config.json")
			compare(t, path, before, arguments(dir), after)
		})
	}
}

func TestProcessInAContainerLosesItAsWell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "process.json")
	compare(t, path, `{"args":["a"],"oomScoreAdj":-1,"capabilities":{"effective":["CAP_SYS_RESOURCE"]}}`,
		[]string{"exec", "--process", path, "id"}, `{"args":["a"],"capabilities":{"effective":[]}}`)
}

func TestScoresThatAnybodyMaySetStay(t *testing.T) {
	const content = `{"process":{"args":["a"],"oomScoreAdj":1000}}`

	dir := t.TempDir()
	compare(t, filepath.Join(dir, "config.json"), content, []string{"create", "--bundle", dir, "id"}, content)
}

func TestOtherCallsAreLeftAlone(t *testing.T) {
	if err := rewrite([]string{"--root", "/nowhere", "delete", "--force", "id"}); err != nil {
		t.Error(err)
	}
}

func compare(t *testing.T, path, content string, args []string, want string) {
	t.Helper()

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := rewrite(args); err != nil {
		t.Fatal(err)
	}

	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if string(got) != want {
		t.Errorf("it became\n%s\nwant\n%s", got, want)
	}
}
