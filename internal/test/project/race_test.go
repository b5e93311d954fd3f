// SPDX-License-Identifier: MPL-2.0

package project_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRaceDetectorThatBreaksDown wants .ci/race to run tests again only if the race detector broke down: a failure of
// the code gets no second chance.
func TestRaceDetectorThatBreaksDown(t *testing.T) {
	const (
		broken  = "ThreadSanitizer: CHECK failed: tsan_rtl.cpp:282 \"((!thr->slot_locked)) != (0)\" (0x0, 0x0) (tid=7863)\nFAIL\texample.org/a\t10.384s\nFAIL\n"
		crashed = "SIGSEGV: segmentation violation\nPC=0x4869339 m=4 sigcode=1 addr=0x0\n          ^ <racecall+0x23>\nFAIL\texample.org/b\t19.318s\nFAIL\n"
		passed  = "ok  \texample.org/a\t1.2s\n"
	)

	for title, given := range map[string]struct {
		first, then string
		runs, code  int
	}{
		"passes":                        {passed, passed, 1, 0},
		"breaks down, then passes":      {broken, passed, 2, 0},
		"crashes in it, then passes":    {crashed, passed, 2, 0},
		"both":                          {broken + crashed, passed, 2, 0},
		"crashes elsewhere":             {strings.ReplaceAll(crashed, "racecall", "cgocall"), passed, 1, 1},
		"crashes in it and fails":       {crashed + "--- FAIL: TestA (0.1s)\nFAIL\texample.org/a\t1s\n", passed, 1, 1},
		"breaks down twice":             {broken, broken, 2, 1},
		"breaks down, then fails":       {broken, "--- FAIL: TestA (0.1s)\nFAIL\texample.org/a\t1s\n", 2, 1},
		"fails":                         {"--- FAIL: TestA (0.1s)\nFAIL\texample.org/a\t1s\n", passed, 1, 1},
		"breaks down after a failure":   {"--- FAIL: TestA (0.1s)\n" + broken, passed, 1, 1},
		"breaks down inside a failure":  {"    --- FAIL: TestA/b (0.1s)\n" + broken, passed, 1, 1},
		"breaks down beside a failure":  {broken + "FAIL\texample.org/b [build failed]\n", passed, 1, 1},
		"breaks down after a race":      {"WARNING: DATA RACE\n" + broken, passed, 1, 1},
		"breaks down with a panic":      {"panic: runtime error\n" + broken, passed, 1, 1},
		"breaks down with a fatal end":  {"fatal error: all goroutines are asleep\n" + broken, passed, 1, 1},
		"fails and speaks of detectors": {"the ThreadSanitizer is on\nFAIL\texample.org/a\t1s\n", passed, 1, 1},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()

			for name, content := range map[string]string{"1": given.first, "2": given.then} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			// It counts its runs, prints the file of that number and fails if the file has a FAIL.
			tests := `cd "$0"; echo >> runs; number=$(wc -l < runs); cat "$number"; ! grep -q FAIL "$number"`
			command := exec.CommandContext(t.Context(), "../../../.ci/race", "sh", "-c", tests, dir)

			said, err := command.CombinedOutput()

			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}

			if code := command.ProcessState.ExitCode(); code != given.code {
				t.Errorf("it ended with %d:\n%s", code, said)
			}

			runs, err := os.ReadFile(filepath.Join(dir, "runs"))
			if err != nil || len(runs) != given.runs {
				t.Errorf("%d runs and %v, want %d:\n%s", len(runs), err, given.runs, said)
			}

			if !strings.Contains(string(said), given.first) {
				t.Errorf("what the first run said is gone:\n%s", said)
			}
		})
	}
}
