// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

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

// referenceByDigest is what an image of Kubernetes is pinned to.
func referenceByDigest(image string) string {
	if strings.Contains(image, "@") {
		return normalised(image)
	}

	return digest(image)
}

// fetchComponent is one try to get an image.
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

// obtain has an image at hand before a component starts: what is not there is
// pulled, again and again where the registry does not deliver. trouble hears of
// each failure, and returns false when the image is not wanted any more.
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

		// What no registry has does not come with time.
		if !trouble(err.Error()) || !imageExists(wanted.image) || w.clock.Sleep(life, backOff) != nil {
			return false
		}
	}
}

// hasComponent tells whether an image is on a machine: since less than an hour,
// or for as long as the configuration names it or something runs from it.
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

// componentOf tells which component an image is of: by its name, or because the
// configuration takes the component from that repository.
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
