// SPDX-License-Identifier: MPL-2.0

package project_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestReleaseCheck breaks a repository that is ready for a release in one place at a time, and wants .ci/release-check
// to name just that.
func TestReleaseCheck(t *testing.T) {
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("gpg is not installed, without which nobody can make a release")
	}

	keys := gpgHome(t)
	good, weak := newKey(t, keys, "rsa4096"), newKey(t, keys, "ed25519")

	for title, given := range map[string]struct {
		files  map[string]string
		then   [][]string
		key    string
		expect string
	}{
		"ready":                 {key: good},
		"no date":               {key: good, files: map[string]string{"CHANGELOG.md": "## 0.1.0 (Unreleased)\n"}, expect: "the heading of the changelog has a date"},
		"a fragment":            {key: good, files: map[string]string{".changelog/unreleased/1.yaml": "kind: FEATURES\n"}, expect: "the changelog has no fragments left"},
		"a version of before":   {key: good, files: map[string]string{"README.md": "version = \"0.1.0-dev\"\n"}, expect: "no page says that nothing is released"},
		"a page of before":      {key: good, files: map[string]string{"README.md": "Not released. <!-- before the first release -->\n"}, expect: "no page says that nothing is released"},
		"an old table":          {key: good, files: map[string]string{"internal/compat/releases.txt": "as-of 2024-01-31\n"}, expect: "the table of releases is of the last 60 days (2024-01-31)"},
		"a tag that was used":   {key: good, then: [][]string{{"tag", "v0.1.0"}}, expect: "there is no tag v0.1.0"},
		"another branch":        {key: good, then: [][]string{{"switch", "--quiet", "-c", "other"}}, expect: "main is checked out"},
		"a commit to be pushed": {key: good, then: [][]string{{"commit", "--quiet", "--allow-empty", "-m", "more"}}, expect: "HEAD is origin/main"},
		"a file to be added":    {key: good, then: [][]string{{"rm", "--quiet", "--cached", "README.md"}}, expect: "the tree is clean"},
		"no key":                {expect: "GPG_FINGERPRINT is an RSA key of 4096 bits that can sign"},
		"a key of another kind": {key: weak, expect: "GPG_FINGERPRINT is an RSA key of 4096 bits that can sign"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			script, err := os.ReadFile("../../../.ci/release-check")
			if err != nil {
				t.Fatal(err)
			}

			files := map[string]string{
				".ci/release-check": string(script), "README.md": "Released.\n", "templates/index.md.tmpl": "Released.\n",
				"CHANGELOG.md":                   "## 0.1.0 (2026-12-01)\n",
				"internal/compat/releases.txt":   "as-of " + time.Now().UTC().AddDate(0, 0, -3).Format(time.DateOnly) + "\n",
				".changelog/unreleased/.gitkeep": "",
			}
			for name, content := range given.files {
				files[name] = content
			}

			for name, content := range files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}

				if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}

			for _, arguments := range append([][]string{
				{"init", "--quiet", "--initial-branch", "main"},
				{"add", "."},
				{"commit", "--quiet", "-m", "all"},
				{"update-ref", "refs/remotes/origin/main", "HEAD"},
			}, given.then...) {
				git := exec.CommandContext(t.Context(), "git", arguments...)
				git.Dir = dir
				git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b.c", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b.c")

				if said, err := git.CombinedOutput(); err != nil {
					t.Fatalf("git %q: %v\n%s", arguments, err, said)
				}
			}

			command := exec.CommandContext(t.Context(), filepath.Join(dir, ".ci", "release-check"))
			command.Env = append(os.Environ(), "GNUPGHOME="+keys, "GPG_FINGERPRINT="+given.key)
			output, err := command.CombinedOutput()
			said := string(output)

			var wrong []string

			for line := range strings.Lines(said) {
				if sentence, found := strings.CutPrefix(line, "missing  "); found {
					wrong = append(wrong, strings.TrimSpace(sentence))
				}
			}

			if got := strings.Join(wrong, "; "); got != given.expect || (err == nil) != (given.expect == "") {
				t.Errorf("it ended with %v and says that %q is missing, want %q:\n%s", err, got, given.expect, said)
			}

			if given.expect == "" {
				tagAsTold(t, dir, keys, good, said)
			}
		})
	}
}

// tagAsTold runs the command for the tag that .ci/release-check prints, as somebody whose name is not that of the key
// and who signs with ssh elsewhere.
func tagAsTold(t *testing.T, dir, keys, key, said string) {
	t.Helper()

	told := regexp.MustCompile(`(?m)^git .*\btag .*$`).FindString(said)

	for _, script := range []string{told, "git tag --verify v0.1.0"} {
		command := exec.CommandContext(t.Context(), "bash", "-euc", script)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=gpg.format", "GIT_CONFIG_VALUE_0=ssh",
			"GNUPGHOME="+keys, "GPG_FINGERPRINT="+key, "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b.c", "GIT_EDITOR=false")

		if output, err := command.CombinedOutput(); err != nil || script == "" {
			t.Errorf("%q: %v\n%s", script, err, output)
		}
	}
}

// gpgHome returns a directory for the keys of a test, whose agent ends with the test. Its name is short, because that of
// the agent's socket must be.
func gpgHome(t *testing.T) string {
	t.Helper()

	dir, err := os.MkdirTemp("", "keys") //nolint:usetesting // The path of a socket has at most 107 bytes.
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		agent := exec.Command("gpgconf", "--kill", "all")
		agent.Env = append(os.Environ(), "GNUPGHOME="+dir)
		_ = agent.Run()
		_ = os.RemoveAll(dir)
	})

	return dir
}

// newKey makes a key that signs and returns its fingerprint.
func newKey(t *testing.T, home, kind string) string {
	t.Helper()

	for _, arguments := range [][]string{
		{"--batch", "--quiet", "--passphrase", "", "--quick-generate-key", kind + " of a test", kind, "sign", "1d"},
		{"--batch", "--with-colons", "--list-secret-keys", kind + " of a test"},
	} {
		command := exec.CommandContext(t.Context(), "gpg", arguments...)
		command.Env = append(os.Environ(), "GNUPGHOME="+home)

		said, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("gpg %q: %v\n%s", arguments, err, said)
		}

		for line := range strings.Lines(string(said)) {
			if fields := strings.Split(line, ":"); fields[0] == "fpr" {
				return fields[9]
			}
		}
	}

	t.Fatal("gpg lists no key")

	return ""
}
