// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden file")

func TestHistory_IsATableOfWhatHappened(t *testing.T) {
	var text bytes.Buffer

	for _, flags := range [][]string{nil, {"--node", "worker-0", "--kind", "cordon,boot,read"}, {"--kind", "lease"}} {
		text.WriteString("talossim history " + strings.Join(flags, " ") + "\n")

		if err := run(t.Context(), append([]string{"history", "--dir", "testdata"}, flags...), nil, &text, io.Discard); err != nil {
			t.Fatal(err)
		}
	}

	golden := filepath.Join("testdata", "history.golden")

	if *update {
		if err := os.WriteFile(golden, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	wanted, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(wanted), text.String()); diff != "" {
		t.Errorf("the tables changed (-golden +now); run with -update if they are meant to:\n%s", diff)
	}
}
