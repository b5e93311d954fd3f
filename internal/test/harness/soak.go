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

// The environment variables of the tests of the harness. They are read only here.
const (
	// EnvSoak is the time of a soak, for all of its packages together, in Go's notation; if it is empty, there is no
	// soak.
	EnvSoak = "TALOSUPGRADE_SOAK"
	// EnvSeed is the seed from which everything is drawn, a decimal number.
	EnvSeed = "TALOSUPGRADE_SEED"
	// EnvOnly is the one case to run, as the message of a failure names it. Its form is up to the test.
	EnvOnly = "TALOSUPGRADE_ONLY"
)

// usualSeed is the seed if [EnvSeed] is empty. It is fixed, so that a test that passed keeps passing until something
// changes.
const usualSeed = 20240521

// Soak returns the time of a soak for all packages together, each of which takes its share, and reports whether there
// is one. If the environment variable is not a duration, it panics with what to do.
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

// Seed returns the seed from which everything is drawn. If the environment variable is not a number, it panics with
// what to do.
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

// Only returns the one case to run; empty for all.
func Only() string { return os.Getenv(EnvOnly) }

// Lanes returns how many bubbles are worth running in parallel.
func Lanes() int { return runtime.GOMAXPROCS(0) }

// Beside calls do for each number below numbers, in all lanes, until the test fails.
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

// Repeat logs the command that repeats what a test has just done. folder is the package below internal/test/harness,
// only the one case that failed; empty for all. It does not fail the test.
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

// quoted returns a word quoted for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
