// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestStatusIsReplacedAndCutToTheWidth(t *testing.T) {
	var out bytes.Buffer

	width := 12
	terminal := &Terminal{out: &out, width: func() int { return width }}

	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { terminal.Status("worker-0") }, "\r\x1b[Kworker-0"},
		{func() { terminal.Status("worker-0") }, ""},
		{func() { terminal.Status("worker-0 is down") }, "\r\x1b[Kworker-0..."},
		{func() { _, _ = terminal.Write([]byte("a line\n")) }, "\r\x1b[Ka line\nworker-0..."},
		{func() { width = 3; _, _ = terminal.Write([]byte("b\n")) }, "\r\x1b[Kb\nwo"},
		{func() { terminal.Status("") }, "\r\x1b[K"},
		{func() { _, _ = terminal.Write([]byte("c\n")) }, "c\n"},
	} {
		step.do()

		if got := out.String(); got != step.want {
			t.Errorf("written %q, want %q", got, step.want)
		}

		out.Reset()
	}
}

func TestNoStatusWhereNobodyWatches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")

	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	terminal := NewTerminal(file)
	terminal.Status("worker-0 is down")

	if _, err := terminal.Write([]byte("a line\n")); err != nil {
		t.Fatal(err)
	}

	terminal.Status("")

	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	if got, err := os.ReadFile(path); err != nil || string(got) != "a line\n" {
		t.Errorf("written %q (%v), want the line alone", got, err)
	}
}
