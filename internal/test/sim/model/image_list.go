// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Image is one that a machine has in its containerd.
type Image struct {
	// Name is a tag, or a digest that somebody asked for.
	Name, Digest string
	Size         int64
	Created      time.Time
}

// Images lists what a machine has in a namespace of the containerd of its kubelet, or
// in the one of Talos itself, by name.
func (w *World) Images(ctx context.Context, name string, in ImageNamespace) (list []Image, err error) {
	if in != NamespaceSystem && in != NamespaceCRI && in != NamespaceOwn {
		return nil, fmt.Errorf("namespace %q: %w", in, ErrUnsupported)
	}

	if err := ctx.Err(); err != nil {
		return nil, err
	}

	add := func(image, sum string, pulled time.Time) {
		list = append(list, Image{Name: image, Digest: sum, Size: imageSize, Created: pulled})
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, "images"); err != nil {
			return
		}

		for image, pulled := range n.pulled {
			if image.namespace == in {
				_, sum, _ := strings.Cut(referenceByDigest(image.image), "@")
				add(image.image, sum, pulled)
			}
		}

		for image, stored := range w.fresh(n.installers(in)) {
			add(image, stored.content.digest, stored.pulled)
		}
	})

	slices.SortFunc(list, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })

	return list, err
}

// installers are those of a machine in a namespace; nil where there are none.
func (n *node) installers(in ImageNamespace) imageStore {
	switch in {
	case NamespaceSystem:
		return n.images
	case NamespaceOwn:
		return n.ownImages
	default:
		return nil
	}
}

// RemoveImage takes an image away from a machine: one reference, whatever else
// stands for the same content. Without it, what is under that reference is downloaded anew.
func (w *World) RemoveImage(ctx context.Context, name, image string, in ImageNamespace) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}

	w.locked(func() {
		var n *node

		if n, err = w.reach(name); err != nil {
			return
		}

		_, component := n.pulled[runtimeImage{in, image}]
		_, installer := n.installers(in)[image]

		if !component && !installer {
			err = fmt.Errorf("image %s not found: %w", image, ErrImageNotFound)
		}

		delete(n.pulled, runtimeImage{in, image})
		delete(n.installers(in), image)
		w.touch(n)
	})

	return err
}
