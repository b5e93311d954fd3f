// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

var update = flag.Bool("update", false, "write what people read instead of comparing it")

// crowded are tests in which processes die, or in which much happens at a time.
var crowded = regexp.MustCompile(`Crash|Kill|Dead|Dies|Many|Together|Parallel|Two|Whatever|Anywhere|Cancel.*Hangs`)

func TestMain(m *testing.M) {
	flag.Parse()

	// Races are where much happens at a time. What is left out here runs without the detector.
	if few := flag.Lookup("test.run").Value; raceEnabled && testing.Short() && few.String() == "" {
		if err := few.Set(crowded.String()); err != nil {
			panic(err)
		}
	}

	os.Exit(wording.Runner{Name: "engine", Last: crowded, Varies: true, Tests: m, Update: update}.Run())
}
