// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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

// Progress is that of a download, in bytes.
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

// persist repeats a pull as often as the machine's version of Talos does by itself. It does not repeat the pull of
// an image that the registry does not have.
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

	// An image that is there is not asked for again, whatever the registry has by now.
	var there bool

	w.locked(func() {
		if content, there = store.find(image, w.clock.Now()); !there {
			content, err = w.registry.resolve(image)
		}
	})

	if err != nil {
		return system{}, err
	}

	// An image that is there under another name is not downloaded again.
	w.locked(func() { there = there || w.fresh(store).has(content.digest) })

	if !there {
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

// transfer plays the time that a download takes.
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

// notFound reports whether the registry does not have the image, rather than not delivering it.
func notFound(err error) bool { return errors.Is(err, ErrImageNotFound) }

// runtimeImage is an image in the containerd of a machine.
type runtimeImage struct {
	namespace ImageNamespace
	image     string
}

// PullComponent downloads an image of Kubernetes to a machine, or finds it
// there; it returns the image's reference with its digest. progress, which may
// be nil, is called several times on the way. A caller that goes away ends the
// download. Errors are those of [World.Pull].
func (w *World) PullComponent(ctx context.Context, name, image string, into ImageNamespace, progress func(Progress)) (string, error) {
	if into != NamespaceSystem && into != NamespaceCRI {
		return "", fmt.Errorf("namespace %q: %w", into, ErrUnsupported)
	}

	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return "", err
	}

	current := begin(ctx, n)
	defer current.end()

	component := n.componentOf(image)
	w.mu.Unlock()

	err = w.persist(current.ctx, n, func() error {
		return w.fetchComponent(current.ctx, n, component, runtimeImage{into, image}, progress)
	})

	w.record(n.name, history.KindPull, map[string]string{"image": image, "ok": strconv.FormatBool(err == nil)})

	switch {
	case current.broken():
		return "", current.err(ctx)
	case err != nil:
		return "", err
	default:
		return referenceByDigest(image), nil
	}
}

// referenceByDigest returns the reference by digest of an image of Kubernetes.
func referenceByDigest(image string) string {
	if strings.Contains(image, "@") {
		return normalised(image)
	}

	return digest(image)
}

// fetchComponent tries once to get an image.
func (w *World) fetchComponent(ctx context.Context, n *node, component string, wanted runtimeImage, progress func(Progress)) error {
	w.mu.Lock()
	fault, struck := w.takeComponentFault(n.name, StepComponentPull, component)
	there := w.hasComponent(n, wanted)
	length := w.spreadOf(n, component, "pull", 30*time.Second, 60*time.Second)
	w.mu.Unlock()

	if struck && fault.Effect == EffectStall {
		if err := w.stall(ctx, fault); err != nil {
			return err
		}
	}

	const lookup = 430 * time.Millisecond
	if err := w.clock.Sleep(ctx, lookup); err != nil {
		return err
	}

	switch {
	case struck && fault.Effect == EffectFail:
		text := fault.text("unexpected status from HEAD request: 503 Service Unavailable")

		return &labelled{ErrPullFailed, fmt.Sprintf("failed to pull image %q: %s", wanted.image, text)}
	case struck && fault.Effect == EffectNotFound, !imageExists(wanted.image):
		return missingImage(wanted.image)
	case !there:
		if err := w.transfer(ctx, length, progress); err != nil {
			return err
		}
	}

	w.locked(func() {
		n.pulled[wanted] = w.clock.Now()
		w.touch(n)
	})

	return ctx.Err()
}

func missingImage(image string) error {
	return fmt.Errorf("failed to resolve image %q: %w", image, ErrImageNotFound)
}

// obtain makes an image available before a component starts: a missing image is pulled, again and again if the
// registry does not deliver. trouble is called with each failure, and returns false if the image is not wanted any
// more.
func (w *World) obtain(life context.Context, n *node, component string, wanted runtimeImage, trouble func(string) bool) bool {
	for {
		w.mu.Lock()
		there := w.hasComponent(n, wanted)
		backOff := w.spreadOf(n, component, "pull back-off", 20*time.Second, 30*time.Second)
		w.mu.Unlock()

		if there {
			return life.Err() == nil
		}

		err := w.fetchComponent(life, n, component, wanted, nil)
		if err == nil || life.Err() != nil {
			return life.Err() == nil
		}

		// An image that no registry has does not appear later.
		if !trouble(err.Error()) || !imageExists(wanted.image) || w.clock.Sleep(life, backOff) != nil {
			return false
		}
	}
}

// hasComponent reports whether an image is on a machine: it was pulled within the last hour, or the configuration
// names it or something runs from it.
func (w *World) hasComponent(n *node, wanted runtimeImage) bool {
	pulled, found := n.pulled[wanted]

	return found && (w.clock.Now().Sub(pulled) <= imageLifetime || n.uses(wanted))
}

func (n *node) uses(wanted runtimeImage) bool {
	if wanted.namespace == NamespaceSystem {
		return wanted.image == n.image(KubeletName) || wanted.image == n.service.running
	}

	for component, pod := range n.pods {
		if wanted.image == pod.PodImage || wanted.image == n.image(component) {
			return true
		}
	}

	return false
}

// componentOf returns the component of an image: by its name, or because the configuration takes the component from
// that repository; empty if there is none.
func (n *node) componentOf(image string) string {
	repository, _ := splitImage(image)
	last := repository[strings.LastIndex(repository, "/")+1:]

	if slices.Contains(componentNames(), last) {
		return last
	}

	for _, component := range n.configuredNames() {
		if configured, _ := splitImage(n.image(component)); configured == repository {
			return component
		}
	}

	return ""
}

func (w *World) pulledComponents(n *node) map[ImageNamespace][]string {
	maps.DeleteFunc(n.pulled, func(image runtimeImage, _ time.Time) bool { return !w.hasComponent(n, image) })

	images := map[ImageNamespace][]string{}
	for image := range n.pulled {
		images[image.namespace] = append(images[image.namespace], image.image)
	}

	for _, list := range images {
		slices.Sort(list)
	}

	return images
}
