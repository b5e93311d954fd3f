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

// Images lists what a machine has in a namespace of the containerd of its kubelet,
// by name.
func (w *World) Images(ctx context.Context, name string, in ImageNamespace) (list []Image, err error) {
	if in != NamespaceSystem && in != NamespaceCRI {
		return nil, fmt.Errorf("namespace %q: %w", in, ErrUnsupported)
	}

	if err := ctx.Err(); err != nil {
		return nil, err
	}

	add := func(image string, pulled time.Time) {
		_, sum, _ := strings.Cut(image, "@")
		if sum == "" {
			_, sum, _ = strings.Cut(digest(image), "@")
		}

		list = append(list, Image{Name: image, Digest: sum, Size: imageSize, Created: pulled})
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, "images"); err != nil {
			return
		}

		for image, pulled := range n.pulled {
			if image.namespace == in {
				add(image.image, pulled)
			}
		}

		for image, pulled := range n.images {
			if in == NamespaceSystem && w.clock.Now().Sub(pulled) <= imageLifetime {
				add(image, pulled)
			}
		}
	})

	slices.SortFunc(list, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })

	return list, err
}
