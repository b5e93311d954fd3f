// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
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

// Clock is the only time the model knows. All durations are simulated ones.
// Implementations are safe for concurrent use.
type Clock interface {
	// Now returns the present simulated instant.
	Now() time.Time
	// Sleep returns nil after d, or the context's error when that ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// RealClock is the plain time package. In a testing/synctest bubble it is the
// bubble's virtual clock.
type RealClock struct{}

// Now implements [Clock].
func (RealClock) Now() time.Time { return time.Now() }

// Sleep implements [Clock].
func (RealClock) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, d) }

// ScaledClock runs faster than the wall clock by a constant factor.
type ScaledClock struct {
	start  time.Time
	factor float64
}

// NewScaledClock starts a clock at the present instant on which factor
// simulated seconds pass in one real second. A factor that is not positive
// counts as 1.
func NewScaledClock(factor float64) *ScaledClock {
	if factor <= 0 {
		factor = 1
	}

	return &ScaledClock{start: time.Now(), factor: factor}
}

// Now implements [Clock].
func (c *ScaledClock) Now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.start)) * c.factor))
}

// Wall returns the real instant at which the clock shows, or showed, a simulated one.
func (c *ScaledClock) Wall(simulated time.Time) time.Time {
	return c.start.Add(c.Real(simulated.Sub(c.start)))
}

// Sleep implements [Clock].
func (c *ScaledClock) Sleep(ctx context.Context, d time.Duration) error {
	return sleep(ctx, c.Real(d))
}

// Real returns how long a simulated duration takes on the wall clock.
func (c *ScaledClock) Real(simulated time.Duration) time.Duration {
	return time.Duration(float64(simulated) / c.factor)
}

func sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	if d <= 0 {
		return nil
	}

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// spawn runs fn in the background until it returns; its context ends with the
// given life or with the world.
func (w *World) spawn(life context.Context, fn func(ctx context.Context)) {
	if w.stopped.Load() {
		return
	}

	w.work.Go(func() { fn(life) })
}

// later runs fn under the lock after a while, unless life ends before.
func (w *World) later(life context.Context, after time.Duration, fn func()) {
	w.spawn(life, func(ctx context.Context) {
		if w.clock.Sleep(ctx, after) != nil {
			return
		}

		w.locked(func() {
			if ctx.Err() == nil {
				fn()
			}
		})
	})
}

// step is something that happens to a machine at a time after its start.
type step struct {
	at time.Duration
	do func()
}

// perform carries out steps in their order of time; it returns false when
// life ended before the last.
func (w *World) perform(ctx context.Context, timeline []step) bool {
	var passed time.Duration

	for _, next := range timeline {
		if w.clock.Sleep(ctx, next.at-passed) != nil {
			return false
		}

		passed = next.at

		w.locked(func() {
			if ctx.Err() == nil {
				next.do()
			}
		})
	}

	return ctx.Err() == nil
}

// await blocks until cond, called under the lock, holds. It returns false if the context ended before.
func (w *World) await(ctx context.Context, cond func() bool) bool {
	for {
		w.mu.Lock()
		holds, changed := cond(), w.changed
		w.mu.Unlock()

		if holds {
			return ctx.Err() == nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// call is one client's request to a machine while it is under way.
type call struct {
	ctx  context.Context
	link context.Context
	end  context.CancelFunc
}

// begin ties a client's context to its connection to the machine: whichever
// breaks first ends the call. The lock is held.
func begin(ctx context.Context, n *node) call {
	tied, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.link, cancel)

	return call{ctx: tied, link: n.link, end: func() { stop(); cancel() }}
}

// broken reports whether the client will not see the answer. The link is checked as well, because the tied context
// ends a moment later.
func (c call) broken() bool { return c.ctx.Err() != nil || c.link.Err() != nil }

// err returns what a client sees of a call that was cut short.
func (c call) err(client context.Context) error {
	if err := client.Err(); err != nil {
		return err
	}

	return ErrConnectionLost
}

// draw returns a deterministic 32-byte value for the seed and a name.
func draw(seed uint64, parts ...string) [sha256.Size]byte {
	var head [8]byte

	binary.BigEndian.PutUint64(head[:], seed)

	return sha256.Sum256(append(head[:], strings.Join(parts, "\x00")...))
}

func drawUint(seed uint64, parts ...string) uint64 {
	sum := draw(seed, parts...)

	return binary.BigEndian.Uint64(sum[:8])
}

// drawUUID returns a value in the form of a random UUID.
func drawUUID(seed uint64, parts ...string) string {
	sum := draw(seed, parts...)
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80

	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// drawIdentity returns the identity of a node as Talos keeps it, in base62, and the /etc/machine-id that Talos
// derives from it: its first half in hexadecimal digits.
func drawIdentity(seed uint64, parts ...string) (identity, machineID string) {
	sum := draw(seed, parts...)

	return base62.EncodeToString(sum[:]), hex.EncodeToString(sum[:len(sum)/2])
}

// drawToken returns base64 in the form in which Talos prints the identity of a cluster.
func drawToken(seed uint64, parts ...string) string {
	sum := draw(seed, parts...)

	return base64.URLEncoding.EncodeToString(sum[:])
}

// purposes returns what takes time on a machine. Each has its place among the nanoseconds of a duration.
func purposes() []string {
	return []string{
		"apply", "reconcile", "install", "pull", "pull back-off", "stop pods", "stop services", "boot", "failing boot", "rejoin",
		"kubelet start", "kubelet create", "kubelet health", "kubelet ready", "etcd start", "etcd catch-up", "etcd snapshot",
		"apiserver start", "start", "stop", "pods remade", "pods reported",
	}
}

// The nanoseconds of a duration keep those of different machines, components and purposes apart: two that begin at the
// same moment never end at the same moment.
const (
	apartOfPurposes   = 5 * time.Nanosecond
	apartOfComponents = 131 * time.Nanosecond
	apartOfMachines   = 1300 * time.Nanosecond
)

// spread returns how long something takes on a machine this time: between low and high, the same for the same seed,
// machine, purpose and repetition. The odd milliseconds keep durations off every poll interval.
func (w *World) spread(n *node, purpose string, low, high time.Duration) time.Duration {
	return w.spreadOf(n, "", purpose, low, high)
}

// spreadOf is [World.spread] for one of the components of a machine.
func (w *World) spreadOf(n *node, component, purpose string, low, high time.Duration) time.Duration {
	place := slices.Index(purposes(), purpose)
	if place < 0 {
		panic("the purpose " + purpose + " has no place among the purposes")
	}

	drawn := purpose
	if component != "" {
		drawn = component + " " + purpose
	}

	n.drawn[drawn]++

	const steps = 1 << 16

	share := drawUint(w.options.Seed, n.name, drawn, fmt.Sprint(n.drawn[drawn])) % steps
	length := low + time.Duration(share)*(high-low)/steps

	return length.Truncate(100*time.Millisecond) + 37*time.Millisecond + 100*time.Microsecond +
		time.Duration(n.index+1)*apartOfMachines +
		time.Duration(slices.Index(componentNames(), component)+1)*apartOfComponents +
		time.Duration(place)*apartOfPurposes
}
