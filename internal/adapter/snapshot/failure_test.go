// SPDX-License-Identifier: MPL-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestWhatFailsLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	data := whole(3)
	flipped := bytes.Clone(data)
	flipped[700] ^= 0xff

	for name, test := range map[string]struct {
		data []byte
		says string
	}{
		"nothing":               {nil, "it is empty"},
		"no database":           {data[:32], "it has 32 bytes"},
		"the end is missing":    {data[:1000], "it has 1000 bytes"},
		"one byte too few":      {data[:len(data)-1], "it has 1567 bytes"},
		"one byte too many":     {append(bytes.Clone(data), 0), "it has 1569 bytes"},
		"a block is missing":    {slices.Concat(data[:512], data[1024:]), "checksum"},
		"cut after some blocks": {data[:1024+32], "checksum"},
		"flipped bytes":         {flipped, "checksum"},
	} {
		parent := t.TempDir()

		_, err := snapshot.New(filepath.Join(parent, "a", "b")).Save(t.Context(), "prod", at(), gives(test.data, 100))
		if !errors.Is(err, cluster.ErrIncomplete) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want it incomplete, saying %q", name, err, test.says)
		}

		if left := listing(t, parent); len(left) > 0 {
			t.Errorf("%s: %q stayed behind", name, left)
		}
	}
}

func TestStreamsThatBreakOffLeaveNothingBehind(t *testing.T) {
	t.Parallel()

	broken := errors.New("connection broken")
	stopped := errors.New("stopped by hand")

	for name, test := range map[string]struct {
		stream func(context.Context, io.Writer, context.CancelCauseFunc) error
		want   error
	}{
		"before anything came": {func(context.Context, io.Writer, context.CancelCauseFunc) error { return broken }, broken},
		"after everything came": {func(ctx context.Context, to io.Writer, _ context.CancelCauseFunc) error {
			return errors.Join(gives(whole(3), 100)(ctx, to), broken)
		}, broken},
		"cancelled in the middle": {func(ctx context.Context, to io.Writer, cancel context.CancelCauseFunc) error {
			err := gives(whole(3)[:100], 10)(ctx, to)
			cancel(stopped)

			return errors.Join(err, gives(whole(3)[100:], 10)(ctx, to))
		}, stopped},
		// It looks whole, and nobody knows whether more was to come.
		"cancelled, with a clean end": {func(ctx context.Context, to io.Writer, cancel context.CancelCauseFunc) error {
			defer cancel(stopped)

			return gives(whole(3), 100)(ctx, to)
		}, stopped},
		"cancelled, and nobody says so": {func(ctx context.Context, to io.Writer, cancel context.CancelCauseFunc) error {
			cancel(stopped)
			_ = gives(whole(3), 100)(ctx, to)

			return nil
		}, stopped},
	} {
		parent := t.TempDir()
		ctx, cancel := context.WithCancelCause(t.Context())

		_, err := snapshot.New(filepath.Join(parent, "a", "b")).Save(ctx, "prod", at(), func(ctx context.Context, to io.Writer) error {
			return test.stream(ctx, to, cancel)
		})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}

		if left := listing(t, parent); len(left) > 0 {
			t.Errorf("%s: %q stayed behind", name, left)
		}

		cancel(nil)
	}
}

func TestFailuresLeaveWhatWasThereBefore(t *testing.T) {
	t.Parallel()

	directory := t.TempDir()
	kept := filepath.Join(directory, "kept")

	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, at := range []string{directory, filepath.Join(directory, "made")} {
		if _, err := snapshot.New(at).Save(t.Context(), "prod", time.Time{}, gives(nil, 1)); err == nil {
			t.Error("nothing was saved as a snapshot")
		}

		if got := listing(t, directory); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("the directory holds %q, want the file that was there", got)
		}
	}
}
