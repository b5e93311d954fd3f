// SPDX-License-Identifier: MPL-2.0

// Package label selects nodes by label selectors of Kubernetes.
package label

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// ErrEmpty is returned for a selector without any requirement: it would match every object.
var ErrEmpty = errors.New("it is empty, and an empty selector matches every node")

// selector is a label selector of Kubernetes.
type selector struct{ labels.Selector }

// Matches implements [cluster.Selector].
func (s selector) Matches(of map[string]string) bool { return s.Selector.Matches(labels.Set(of)) }

// Parse parses a label selector as kubectl -l accepts it, such as "pool=gpu,!spare". An empty one is [ErrEmpty].
func Parse(text string) (cluster.Selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, ErrEmpty
	}

	parsed, err := labels.Parse(text)
	if err != nil {
		return nil, err
	}

	if parsed.Empty() {
		return nil, ErrEmpty
	}

	return selector{parsed}, nil
}
