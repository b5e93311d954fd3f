// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the figures instead of comparing with them")

// figuresFile has the figures of each roll as they were last recorded: whatever makes a roll more or less expensive
// changes this file.
const figuresFile = "testdata/figures.json"

// recorded has the figures of a roll in virtual time.
type recorded struct {
	// Talos and Kubernetes are the requests to these APIs, of all nodes together.
	Talos      int `json:"talos_requests"`
	Kubernetes int `json:"kubernetes_requests"`
	// Unchanged are the requests to the Talos API that got the same answer as the time before.
	Unchanged int `json:"unchanged_talos_requests"`
	// OverBest is the time of the roll over that of the best schedule.
	OverBest float64 `json:"over_best"`
}

// slack is by how much figures that depend on the order of goroutines may differ from the recorded ones: writes that
// prove that a watch is current are shared by all that wait for one.
const slack = 0.01

// compare compares the figures with the recorded ones, or records them.
func compare(t *testing.T, all []figures) {
	t.Helper()

	known := map[string]recorded{}

	content, err := os.ReadFile(figuresFile)
	if err == nil {
		err = json.Unmarshal(content, &known)
	}

	if err != nil && !(*update && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}

	for _, f := range all {
		name := f.String()
		now := recorded{Talos: total(f.talos), Kubernetes: total(f.kube), Unchanged: total(f.unchanged), OverBest: math.Round(1000*f.overBest()) / 1000}
		last := known[name]
		same := now.Talos == last.Talos && !differs(float64(now.Unchanged), float64(last.Unchanged)) && !differs(float64(now.Kubernetes), float64(last.Kubernetes)) && !differs(now.OverBest, last.OverBest)

		switch {
		case same:
		case *update:
			known[name] = now
		default:
			t.Errorf("%s: got %+v, and %s has %+v; if that is meant, run the test with -update", name, now, figuresFile, last)
		}
	}

	if !*update {
		return
	}

	content, err = json.MarshalIndent(known, "", "  ")
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(figuresFile, append(content, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

func differs(now, last float64) bool { return math.Abs(now-last) > slack*last }
