// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// followedNodesAreNew wants each look at followed nodes to say what was done before.
func followedNodesAreNew(t *testing.T, f Fixture) {
	stop := f.API().FollowNodes(t.Context())
	defer stop()

	listed, err := f.API().Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	cordoned := listed[len(listed)-1].Name
	defer f.CordonAsPerson(t, cordoned, false)

	const often = 20

	for i := range often {
		f.CordonAsPerson(t, cordoned, i%2 == 0)

		now, err := f.API().NodesNow(t.Context(), listed[i%len(listed)].Name)
		if err != nil {
			t.Fatal(err)
		}

		at := slices.IndexFunc(now, func(node cluster.KubeNode) bool { return node.Name == cordoned })
		if at < 0 || now[at].Unschedulable != (i%2 == 0) {
			t.Errorf("look %d does not say what was done to %s before it: %+v", i, cordoned, now)
		}
	}

	if now, err := f.API().NodesNow(t.Context(), "nobody"); err != nil || len(now) != len(listed) {
		t.Errorf("a claim onto a node that does not exist: %d nodes, %v", len(now), err)
	}
}

// What a look at followed nodes writes, and as whom. Both are written down here a second
// time on purpose.
const (
	claimAnnotation = "talosupgrade.vitistack.io/claim"
	claimManager    = "talosupgrade-claim"
)

// claimsAreWritten wants a look at followed nodes to cost one write onto the node that
// is named, which undoes nothing and nobody takes for a write of somebody else, and no list.
func claimsAreWritten(t *testing.T, f WireFixture) {
	nodes := f.Wire().CoreV1().Nodes()

	listed, err := f.API().Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	claimed := listed[len(listed)-1].Name
	claim := func() string {
		node, err := nodes.Get(t.Context(), claimed, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return node.Annotations[claimAnnotation]
	}

	stood := claim()

	if _, err := f.API().NodesNow(t.Context(), claimed); err != nil || claim() != stood {
		t.Errorf("nodes that nobody follows: %v, and the claim %q, want %q", err, claim(), stood)
	}

	stop := f.API().FollowNodes(t.Context())
	defer stop()

	f.Eventually(t, "a claim", func() (bool, error) {
		_, err := f.API().NodesNow(t.Context(), claimed)

		return claim() != stood, err
	})

	before := claim()

	if now, err := f.API().NodesNow(t.Context(), claimed); err != nil || claim() == before || !slices.Equal(namesOf(now), namesOf(listed)) {
		t.Errorf("a second look: %v, %v, and the claim %q, want another one", namesOf(now), err, claim())
	}

	if _, err := f.API().Cordon(t.Context(), claimed, "run-1"); err != nil {
		t.Fatal(err)
	}

	now, err := f.API().NodesNow(t.Context(), claimed)

	at := slices.IndexFunc(now, func(node cluster.KubeNode) bool { return node.Name == claimed })
	if err != nil || at < 0 || now[at].CordonedBy != "run-1" || now[at].LastWriter == claimManager {
		t.Errorf("a claim after a cordon of ours: %v, %+v", err, now)
	}

	if err := f.API().Uncordon(t.Context(), claimed); err != nil || claim() != "" {
		t.Errorf("an uncordon: %v, and the claim %q is left", err, claim())
	}
}
