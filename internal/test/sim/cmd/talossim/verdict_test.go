// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// alarmed writes a history in which a control plane was cordoned although everybody had observed an alarm of etcd,
// and returns its directory.
func alarmed(t *testing.T) string {
	t.Helper()

	var (
		text bytes.Buffer
		now  time.Duration
	)

	writer := history.NewWriter(&text, func() time.Duration { return now })
	for _, name := range []string{"cp-0", "cp-1", "cp-2"} {
		writer.Record(name, history.KindNode, map[string]string{"role": "controlplane", "talos": "1.13.2", "kubelet": "1.34.2"})
	}

	writer.Record("", history.KindLease, map[string]string{"holder": "run", "by": "client"})
	writer.Record("cp-1", history.KindFault, map[string]string{"step": "etcd", "effect": "alarm-nospace"})

	now = time.Minute

	writer.Record("cp-1", history.KindRead, map[string]string{"what": "etcd"})
	writer.Record("cp-0", history.KindCordon, map[string]string{"unschedulable": "true", "by": "client"})

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sim.HistoryFile), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestVerdictKnowsWhatWasSkippedAndWanted(t *testing.T) {
	t.Parallel()

	dir := alarmed(t)

	for title, test := range map[string]struct {
		flags []string
		want  []checker.Invariant
	}{
		"nothing is skipped":      {nil, []checker.Invariant{checker.S2}},
		"alarms are skipped":      {[]string{"--skips", "etcd-alarms,drain"}, nil},
		"something else is":       {[]string{"--skips", "two-members"}, []checker.Invariant{checker.S2}},
		"a snapshot should exist": {[]string{"--skips", "etcd-alarms", "--snapshot-first"}, []checker.Invariant{checker.S14}},
	} {
		if judged := judge(t, dir, test.flags...); !slices.Equal(judged.Broken(), test.want) {
			t.Errorf("%s: broke %v, want %v: %+v", title, judged.Broken(), test.want, judged.Violations)
		}
	}
}

func TestOnlyWhatCanBeSkippedIs(t *testing.T) {
	t.Parallel()

	for _, check := range []string{"etcd-alarm", "etcd-quorum"} {
		err := run(t.Context(), []string{"verdict", "--dir", alarmed(t), "--skips", check}, nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), `no check "`+check+`" that can be skipped`) {
			t.Errorf("%s: got %v, want a refusal", check, err)
		}
	}
}
