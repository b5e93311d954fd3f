// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// BenchmarkPlanOf1000Nodes is a part of the bar for refresh and plan: 3 seconds
// for all of it. The engine plans again before every node.
func BenchmarkPlanOf1000Nodes(b *testing.B) {
	s := newScene(0, 0)

	for i := range 995 {
		s.add(cluster.Worker, fmt.Sprintf("worker-%03d", i), fmt.Sprintf("10.0.%d.%d", 1+i/250, i%250))
	}

	for i := range 5 {
		s.add(cluster.ControlPlane, fmt.Sprintf("cp-%d", i), fmt.Sprintf("10.0.0.%d", i))
	}

	s.elect()
	b.ReportAllocs()

	for b.Loop() {
		if made := s.make(); len(made.Steps) != 1000 || len(made.Findings) > 0 {
			b.Fatalf("%d steps, findings %v", len(made.Steps), made.Findings)
		}
	}
}
