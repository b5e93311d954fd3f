// SPDX-License-Identifier: MPL-2.0

package real

import (
	"fmt"
	"os"
	"testing"
)

const (
	// runVariable makes the tests run; make real sets it.
	runVariable = "TALOSUPGRADE_REAL"
	// roleVariable makes the test binary do something else than run the tests.
	roleVariable = "TALOSUPGRADE_REAL_ROLE"
	// worldVariable names the directory of the run, for the processes in its world.
	worldVariable = "TALOSUPGRADE_REAL_WORLD"
)

// The roles of the test binary.
const (
	roleProbe   = "probe"
	roleInit    = "init"
	roleTests   = "tests"
	roleMachine = "machine"
	roleSweeper = "sweeper"
)

// roles are the functions that run instead of the tests. They end the process.
var roles = map[string]func() error{
	roleProbe:   func() error { return nil },
	roleInit:    beInit,
	roleMachine: beMachine,
	roleSweeper: beSweeper,
}

func TestMain(m *testing.M) {
	if run, ok := roles[os.Getenv(roleVariable)]; ok {
		if err := run(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Getenv(roleVariable), err)
			os.Exit(1)
		}

		return
	}

	if os.Getenv(runVariable) == "" || os.Getenv(roleVariable) == roleTests {
		os.Exit(m.Run())
	}

	if missing = lacking(); missing != "" {
		// The tests are skipped with the reason, and the exit code is not that of a pass.
		m.Run()
		fmt.Fprintf(os.Stderr, "make real: nothing was run: %s\n", missing)
		os.Exit(1)
	}

	os.Exit(runWorld())
}

// missing is why this machine cannot run the machines; empty if it can.
var missing string

// need skips a test outside of a world.
func need(t *testing.T) {
	t.Helper()

	switch {
	case missing != "":
		t.Skip(missing)
	case os.Getenv(worldVariable) == "":
		t.Skipf("%s is not set: make real sets it", runVariable)
	}
}
