// SPDX-License-Identifier: MPL-2.0

package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// pack finds a place for the pods of a drained node, the biggest first and each
// on the first node with room (first-fit decreasing), and notes those that find
// none. All other nodes are back in service by then, so nothing is kept of it.
func (f *forecast) pack(moving []*cluster.WorkloadPod, drained int) {
	slices.SortStableFunc(moving, func(a, b *cluster.WorkloadPod) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(b.CPU, a.CPU))
	})

	before := map[int]room{}

	for _, pod := range moving {
		at, found := f.place(pod, drained)
		if !found {
			f.homeless.add(f.nodes[drained].name, fmt.Sprintf("%s (%s)", pod, asked(pod)))

			continue
		}

		if _, kept := before[at]; !kept {
			before[at] = f.nodes[at].room
		}

		f.nodes[at].take(pod)
	}

	for at, was := range before {
		f.nodes[at].room = was
	}
}

// place is the first node that suits the pod and has room for it.
func (f *forecast) place(pod *cluster.WorkloadPod, drained int) (at int, found bool) {
	for _, name := range pod.Fits {
		at, known := f.index[name]
		if known && at != drained && f.nodes[at].takes && f.nodes[at].fits(pod) {
			return at, true
		}
	}

	return 0, false
}

// asked is what a pod asks for, as people write it: "1500m CPU, 2048 MiB".
func asked(pod *cluster.WorkloadPod) string {
	var parts []string

	if pod.CPU > 0 {
		parts = append(parts, fmt.Sprintf("%dm CPU", pod.CPU))
	}

	switch {
	case pod.Memory >= 1<<20:
		parts = append(parts, fmt.Sprintf("%d MiB", pod.Memory>>20))
	case pod.Memory > 0:
		parts = append(parts, fmt.Sprintf("%d bytes", pod.Memory))
	}

	if len(parts) == 0 {
		return "a place"
	}

	return strings.Join(parts, ", ")
}
