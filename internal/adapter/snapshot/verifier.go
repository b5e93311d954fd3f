// SPDX-License-Identifier: MPL-2.0

package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// blockSize divides the length of every database of etcd: bbolt writes pages, whose size is a multiple of it.
// `etcdctl snapshot restore` uses it to find out whether a checksum follows.
const blockSize = 512

// verifier writes a snapshot, which is a database followed by its SHA-256, and verifies it at the same time.
type verifier struct {
	ctx context.Context
	to  io.Writer

	// whole is the hash of everything, database that of everything but the trailer, which is the last bytes so far.
	whole, database hash.Hash
	trailer         []byte
	size            int64
	// failure is why a write failed; the stream need not return it.
	failure error
}

func newVerifier(ctx context.Context, to io.Writer) *verifier {
	return &verifier{ctx: ctx, to: to, whole: sha256.New(), database: sha256.New()}
}

// Write implements [io.Writer].
func (v *verifier) Write(data []byte) (int, error) {
	if v.failure != nil {
		return 0, v.failure
	}

	if v.ctx.Err() != nil {
		v.failure = cluster.Ended(v.ctx)

		return 0, v.failure
	}

	written, err := v.to.Write(data)
	v.note(data[:written])

	if err != nil {
		v.failure = refused("unable to write a snapshot of etcd", err)
	}

	return written, v.failure
}

func (v *verifier) note(data []byte) {
	v.size += int64(len(data))
	_, _ = v.whole.Write(data) // a hash takes everything

	// What does not fit into the trailer any more belongs to the database.
	if len(data) >= sha256.Size {
		_, _ = v.database.Write(v.trailer)
		_, _ = v.database.Write(data[:len(data)-sha256.Size])
		v.trailer = append(v.trailer[:0], data[len(data)-sha256.Size:]...)

		return
	}

	v.trailer = append(v.trailer, data...)

	if over := len(v.trailer) - sha256.Size; over > 0 {
		_, _ = v.database.Write(v.trailer[:over])
		v.trailer = slices.Delete(v.trailer, 0, over)
	}
}

// verify returns an error if a stream that has ended is not a complete snapshot with a matching checksum.
func (v *verifier) verify() error {
	const what = "unable to use the snapshot of etcd"

	switch {
	case v.size == 0:
		return fmt.Errorf("%s: %w: it is empty", what, cluster.ErrIncomplete)
	case v.size <= sha256.Size:
		return fmt.Errorf("%s: %w: it has %d bytes, and its checksum alone takes %d", what, cluster.ErrIncomplete, v.size, sha256.Size)
	case v.size%blockSize != sha256.Size:
		return fmt.Errorf("%s: %w: it has %d bytes, which is no number of blocks of %d bytes and a checksum of %d: the node ended it early",
			what, cluster.ErrIncomplete, v.size, blockSize, sha256.Size)
	case !bytes.Equal(v.database.Sum(nil), v.trailer):
		return fmt.Errorf("%s: %w: its checksum at the end, %x, is not that of the %d bytes before it, %x: some were lost or changed on the way",
			what, cluster.ErrIncomplete, v.trailer, v.size-sha256.Size, v.database.Sum(nil))
	default:
		return nil
	}
}
