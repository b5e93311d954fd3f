// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	// imageLifetime is how long an image that nothing runs stays on a machine.
	imageLifetime = time.Hour
	// imageSize is roughly what an installer image holds, in bytes.
	imageSize     = 180 << 20
	progressSteps = 12
	// pullPersistence is how long Talos before 1.14 tries to pull an image before it
	// says that it failed, and pullPause how soon it tries again at first.
	pullPersistence = 20 * time.Minute
	pullPause       = 5037 * time.Millisecond
)

// Progress of a download, in bytes.
type Progress struct {
	Offset, Total int64
}

// Pull downloads an installer image to a machine, for clients to install from, or
// finds it there. progress, which may be nil, is called several times on the way.
// It returns the image's reference with its digest. A caller that goes away ends
// the download. From Talos 1.14 on a machine tries once, before that for
// [pullPersistence].
func (w *World) Pull(ctx context.Context, name, image string, progress func(Progress)) (string, error) {
	return w.PullInto(ctx, name, image, NamespaceSystem, progress)
}

// PullInto is [World.Pull] into one of the two stores that hold installers.
func (w *World) PullInto(ctx context.Context, name, image string, into ImageNamespace, progress func(Progress)) (string, error) {
	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return "", err
	}

	store := n.installers(into)
	if store == nil {
		w.mu.Unlock()

		return "", fmt.Errorf("namespace %q: %w", into, ErrUnsupported)
	}

	current := begin(ctx, n)
	defer current.end()

	w.mu.Unlock()

	content, err := w.pullInto(current.ctx, n, store, image, progress)

	switch {
	case current.broken():
		return "", current.err(ctx)
	case err != nil:
		return "", err
	}

	repository, _ := splitImage(image)

	return repository + "@" + content.digest, nil
}

// pullInto brings an image into one of a machine's stores, or finds it there.
func (w *World) pullInto(ctx context.Context, n *node, store imageStore, image string, progress func(Progress)) (system, error) {
	var (
		content system
		fault   Fault
		struck  bool
	)

	err := w.persist(ctx, n, func() (err error) {
		w.locked(func() { fault, struck = w.takeFault(n.name, StepPull) })

		content, err = w.download(ctx, n, store, normalised(image), fault, struck, progress)

		return err
	})

	w.record(n.name, history.KindPull, map[string]string{"image": image, "ok": strconv.FormatBool(err == nil)})

	switch {
	case err != nil || !struck:
		return content, err
	case fault.Effect == EffectConnectionLost:
		return system{}, ErrConnectionLost
	case fault.Effect == EffectUnreachable:
		w.locked(func() { w.fallSilent(n, fault, replyTime) })
	}

	return content, nil
}

// persist carries out a pull as often as the machine's version of Talos does by
// itself. What a registry does not have is not asked for again.
func (w *World) persist(ctx context.Context, n *node, try func() error) error {
	var once bool

	w.locked(func() { once = AtLeast(n.running().talos, 1, 14) })

	begun := w.clock.Now()

	for pause := pullPause; ; pause *= 2 {
		err := try()
		if once || err == nil || notFound(err) || ctx.Err() != nil || w.clock.Now().Sub(begun)+pause > pullPersistence {
			return err
		}

		if ended := w.clock.Sleep(ctx, pause); ended != nil {
			return ended
		}
	}
}

// replyTime is how long a machine still answers before a fault silences it.
const replyTime = 1037 * time.Millisecond

func (w *World) download(
	ctx context.Context, n *node, store imageStore, image string, fault Fault, struck bool, progress func(Progress),
) (content system, err error) {
	if struck && fault.Effect == EffectStall {
		if err := w.stall(ctx, fault); err != nil {
			return system{}, err
		}
	}

	const lookup = 730 * time.Millisecond
	if err := w.clock.Sleep(ctx, lookup); err != nil {
		return system{}, err
	}

	if struck {
		switch fault.Effect {
		case EffectFail:
			text := fault.text("unexpected status from HEAD request: 503 Service Unavailable")

			return system{}, &labelled{ErrPullFailed, fmt.Sprintf("failed to pull image %q: %s", image, text)}
		case EffectNotFound:
			return system{}, missingImage(image)
		default:
		}
	}

	// What is there is not asked for again, whatever the registry has by now.
	var there bool

	w.locked(func() {
		if content, there = store.find(image, w.clock.Now()); !there {
			content, err = w.registry.resolve(image)
		}
	})

	if err == nil && !there {
		err = w.fetch(ctx, n, progress)
	}

	if err != nil {
		return system{}, err
	}

	w.locked(func() {
		store.put(content, w.clock.Now())
		w.touch(n)
	})

	return content, ctx.Err()
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

// notFound tells a registry without the image from one that does not deliver.
func notFound(err error) bool { return errors.Is(err, ErrImageNotFound) }
