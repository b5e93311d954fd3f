// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	// SnapshotSize is the length in bytes of a snapshot of etcd without its
	// checksum, which comes behind it.
	SnapshotSize   = 3 << 20
	snapshotChunk  = 32 << 10
	snapshotChunks = SnapshotSize / snapshotChunk
)

// EtcdSnapshot writes a snapshot of the member of a control plane, found by name
// or address: the database of the member in [SnapshotSize] bytes, and the SHA-256 of
// them, in pieces of 32 KiB and over some seconds. The local member gives it, with a
// leader or without one. An error of the writer ends it.
func (w *World) EtcdSnapshot(ctx context.Context, name string, to io.Writer) error {
	var (
		current call
		stream  snapshotStream
	)

	err := w.askEtcd(ctx, name, question{api: "EtcdSnapshot"}, func(n *node) {
		const least, most = 2 * time.Second, 5 * time.Second

		current = begin(ctx, n)
		stream = snapshotStream{
			world: w, to: to, node: n.name,
			pause:   w.spread(n, "etcd snapshot", least, most) / (snapshotChunks + 1),
			content: bytes.NewReader(w.database(n)),
		}
		stream.fault, _ = w.takeFault(n.name, StepEtcdSnapshot)
	})
	if err != nil {
		return err
	}

	defer current.end()

	err = stream.run(current.ctx)
	if current.broken() {
		err = current.err(ctx)
	}

	whole := err == nil && stream.sent == SnapshotSize+sha256.Size && stream.fault.Effect != EffectCorrupt
	w.record(stream.node, history.KindSnapshot, map[string]string{
		"bytes": strconv.Itoa(stream.sent), "whole": strconv.FormatBool(whole),
	})

	return err
}

// snapshotStream is one snapshot on its way.
type snapshotStream struct {
	world   *World
	node    string
	to      io.Writer
	content io.Reader
	fault   Fault // zero for none
	pause   time.Duration
	sent    int
}

func (s *snapshotStream) run(ctx context.Context) error {
	if s.fault.Effect == EffectFail {
		return refuse("failed reading etcd snapshot: %s", s.fault.text("etcdserver: too many requests"))
	}

	hash := sha256.New()
	chunk := make([]byte, snapshotChunk)

	for i := range snapshotChunks {
		if _, err := io.ReadFull(io.TeeReader(s.content, hash), chunk); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}

		if i == snapshotChunks/2 {
			if ended, err := s.strike(ctx, chunk); ended || err != nil {
				return err
			}
		}

		if err := s.send(ctx, chunk); err != nil {
			return err
		}
	}

	return s.send(ctx, hash.Sum(nil))
}

// strike is what the script does in the middle; ended tells that no more comes.
func (s *snapshotStream) strike(ctx context.Context, chunk []byte) (ended bool, err error) {
	switch s.fault.Effect {
	case EffectCut:
		return true, nil
	case EffectConnectionLost:
		return true, ErrConnectionLost
	case EffectStall:
		return false, s.world.stall(ctx, s.fault)
	case EffectCorrupt:
		for i := range sha256.Size {
			chunk[i] ^= 0xff
		}
	default:
	}

	return false, nil
}

func (s *snapshotStream) send(ctx context.Context, bytes []byte) error {
	if err := s.world.clock.Sleep(ctx, s.pause); err != nil {
		return err
	}

	written, err := s.to.Write(bytes)
	s.sent += written

	return err
}
