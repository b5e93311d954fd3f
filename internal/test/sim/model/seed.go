// SPDX-License-Identifier: MPL-2.0

package model

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jxskiss/base62"
)

// draw is a deterministic 32-byte value for the seed and a name.
func draw(seed uint64, parts ...string) [sha256.Size]byte {
	var head [8]byte

	binary.BigEndian.PutUint64(head[:], seed)

	return sha256.Sum256(append(head[:], strings.Join(parts, "\x00")...))
}

func drawUint(seed uint64, parts ...string) uint64 {
	sum := draw(seed, parts...)

	return binary.BigEndian.Uint64(sum[:8])
}

// drawUUID has the form of a random UUID.
func drawUUID(seed uint64, parts ...string) string {
	sum := draw(seed, parts...)
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80

	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// drawIdentity is the identity of a node as Talos keeps it, in base62, and the
// /etc/machine-id that Talos makes of that: its first half, in hexadecimal digits.
func drawIdentity(seed uint64, parts ...string) (identity, machineID string) {
	sum := draw(seed, parts...)

	return base62.EncodeToString(sum[:]), hex.EncodeToString(sum[:len(sum)/2])
}

// drawToken is base64 as Talos prints the identity of a cluster.
func drawToken(seed uint64, parts ...string) string {
	sum := draw(seed, parts...)

	return base64.URLEncoding.EncodeToString(sum[:])
}

// spread is how long something takes on a machine this time: between low and
// high, the same for the same seed, machine, purpose and repetition. The odd
// microseconds keep durations off every poll interval, and apart from one
// another on different machines.
func (w *World) spread(n *node, purpose string, low, high time.Duration) time.Duration {
	n.drawn[purpose]++

	const steps = 1 << 16

	share := drawUint(w.options.Seed, n.name, purpose, fmt.Sprint(n.drawn[purpose])) % steps
	length := low + time.Duration(share)*(high-low)/steps

	return length.Truncate(100*time.Millisecond) + 37*time.Millisecond +
		100*time.Microsecond + time.Duration(n.index+1)*1300*time.Nanosecond
}

// spreadOf is [World.spread] for one of the components of a machine, which keep
// apart from one another too.
func (w *World) spreadOf(n *node, component, purpose string, low, high time.Duration) time.Duration {
	const apart = 131 * time.Nanosecond

	place := slices.Index(componentNames(), component) + 1

	return w.spread(n, component+" "+purpose, low, high) + time.Duration(place)*apart
}
