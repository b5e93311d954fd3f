// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"time"
)

// Clock is the only time the model knows. All durations are simulated ones.
// Implementations are safe for concurrent use.
type Clock interface {
	// Now is the present simulated instant.
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

// Sleep implements [Clock].
func (c *ScaledClock) Sleep(ctx context.Context, d time.Duration) error {
	return sleep(ctx, c.Real(d))
}

// Real is how long a simulated duration takes on the wall clock.
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
