// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What the environment says about the tests of the harness. This is the only
// place that reads it.
const (
	// EnvSoak is the budget of a soak, all of its packages together, in Go's
	// notation; empty is none.
	EnvSoak = "TALOSUPGRADE_SOAK"
	// EnvSeed is what is drawn from, a decimal number.
	EnvSeed = "TALOSUPGRADE_SEED"
	// EnvOnly is the one case to run, as a failure has named it; what it looks
	// like is the business of the test.
	EnvOnly = "TALOSUPGRADE_ONLY"
)

// usualSeed is drawn from where nobody says otherwise, so that a test that was
// green stays green until somebody changes something.
const usualSeed = 20240521

// Soak tells whether to run for long, and how long that is for all packages
// together: each takes its share. It panics with what to do where the
// environment says something else than a duration.
func Soak() (budget time.Duration, on bool) {
	budget, err := parseSoak(os.Getenv(EnvSoak))
	if err != nil {
		panic(err)
	}

	return budget, budget > 0
}

func parseSoak(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}

	budget, err := time.ParseDuration(text)
	if err != nil || budget <= 0 {
		return 0, fmt.Errorf("%s is %q, want a duration such as 10m or 1h", EnvSoak, text)
	}

	return budget, nil
}

// Seed is what everything is drawn from. It panics with what to do where the
// environment says something else than a number.
func Seed() uint64 {
	seed, err := parseSeed(os.Getenv(EnvSeed))
	if err != nil {
		panic(err)
	}

	return seed
}

func parseSeed(text string) (uint64, error) {
	if text == "" {
		return usualSeed, nil
	}

	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q, want a number from 0 to %d", EnvSeed, text, uint64(1<<64-1))
	}

	return seed, nil
}

// Only is the one case to run, empty for all.
func Only() string { return os.Getenv(EnvOnly) }

// Lanes is how many bubbles are worth running beside each other.
func Lanes() int { return runtime.GOMAXPROCS(0) }

// Beside does something for each number below another one, in all lanes, until the test
// fails.
func Beside(t testing.TB, numbers int, do func(number int)) {
	t.Helper()

	var (
		next atomic.Int64
		work sync.WaitGroup
	)

	for range Lanes() {
		work.Go(func() {
			for number := int(next.Add(1)) - 1; number < numbers && !t.Failed(); number = int(next.Add(1)) - 1 {
				do(number)
			}
		})
	}

	work.Wait()
}

// Repeat says which command repeats what a test of a package has just done:
// folder is the package's below internal/test/harness, only the one case that it is
// about, empty for all of them. It fails nothing by itself.
func Repeat(t testing.TB, folder string, seed uint64, only string) {
	t.Helper()
	t.Logf("to repeat it: %s", repeating(folder, t.Name(), seed, only))
}

func repeating(folder, test string, seed uint64, only string) string {
	words := []string{fmt.Sprintf("%s=%d", EnvSeed, seed)}
	if only != "" {
		words = append(words, EnvOnly+"="+quoted(only))
	}

	levels := strings.Split(test, "/")
	for index, level := range levels {
		levels[index] = "^" + level + "$"
	}

	return strings.Join(append(words, "go test -count=1 -v -run", quoted(strings.Join(levels, "/")), "./internal/test/harness/"+folder), " ")
}

// quoted is a word as a shell takes it.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
