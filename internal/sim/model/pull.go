// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
)

const (
	// imageLifetime is how long an image that nothing runs stays on a machine.
	imageLifetime = time.Hour
	// imageSize is roughly what an installer image holds, in bytes.
	imageSize     = 180 << 20
	progressSteps = 12
)

// Progress of a download, in bytes.
type Progress struct {
	Offset, Total int64
}

// Pull downloads an installer image to a machine, or finds it there. progress,
// which may be nil, is called several times on the way. It returns the image's
// reference with its digest. A caller that goes away ends the download.
func (w *World) Pull(ctx context.Context, name, image string, progress func(Progress)) (string, error) {
	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return "", err
	}

	current := begin(ctx, n)
	defer current.end()

	fault, struck := w.takeFault(n.name, StepPull)
	w.mu.Unlock()

	err = w.download(current.ctx, n, image, fault, struck, progress)

	w.record(n.name, history.KindPull, map[string]string{"image": image, "ok": strconv.FormatBool(err == nil)})

	switch {
	case current.broken():
		return "", current.err(ctx)
	case err != nil:
		return "", err
	case struck && fault.Effect == EffectConnectionLost:
		return "", ErrConnectionLost
	case struck && fault.Effect == EffectUnreachable:
		w.locked(func() { w.fallSilent(n, fault, replyTime) })
	}

	return digest(image), nil
}

// replyTime is how long a machine still answers before a fault silences it.
const replyTime = 1037 * time.Millisecond

func (w *World) download(
	ctx context.Context, n *node, image string, fault Fault, struck bool, progress func(Progress),
) error {
	if struck && fault.Effect == EffectStall {
		if err := w.stall(ctx, fault); err != nil {
			return err
		}
	}

	const lookup = 730 * time.Millisecond
	if err := w.clock.Sleep(ctx, lookup); err != nil {
		return err
	}

	if struck {
		switch fault.Effect {
		case EffectFail:
			text := fault.text("unexpected status from HEAD request: 503 Service Unavailable")

			return &labelled{ErrPullFailed, fmt.Sprintf("failed to pull image %q: %s", image, text)}
		case EffectNotFound:
			return fmt.Errorf("failed to resolve image %q: %w", image, ErrImageNotFound)
		default:
		}
	}

	if _, err := parseInstaller(image); err != nil {
		return err
	}

	if !w.hasImage(n, image) {
		if err := w.fetch(ctx, n, progress); err != nil {
			return err
		}
	}

	w.locked(func() {
		n.images[image] = w.clock.Now()
		w.touch(n)
	})

	return ctx.Err()
}

func (w *World) hasImage(n *node, image string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	pulled, there := n.images[image]

	return there && w.clock.Now().Sub(pulled) <= imageLifetime
}

func (w *World) fetch(ctx context.Context, n *node, progress func(Progress)) error {
	const least, most = 30 * time.Second, 60 * time.Second

	w.mu.Lock()
	length := w.spread(n, "pull", least, most)
	w.mu.Unlock()

	return w.transfer(ctx, length, progress)
}

// transfer lets a download take its time.
func (w *World) transfer(ctx context.Context, length time.Duration, progress func(Progress)) error {
	for i := range progressSteps {
		if err := w.clock.Sleep(ctx, length/progressSteps); err != nil {
			return err
		}

		if progress != nil {
			progress(Progress{Offset: int64(i+1) * imageSize / progressSteps, Total: imageSize})
		}
	}

	return nil
}

// stall waits for a fault's duration, or until the script is replaced.
func (w *World) stall(ctx context.Context, fault Fault) error {
	if fault.For > 0 {
		return w.clock.Sleep(ctx, fault.For)
	}

	w.mu.Lock()
	replaced := w.scriptChanged
	w.mu.Unlock()

	select {
	case <-replaced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func digest(image string) string {
	sum := draw(0, "image", image)

	return fmt.Sprintf("%s@sha256:%x", image, sum)
}

// notFound tells a registry without the image from one that does not deliver.
func notFound(err error) bool { return errors.Is(err, ErrImageNotFound) }
