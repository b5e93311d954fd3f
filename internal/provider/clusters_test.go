// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"
	"time"
)

func TestOperationsAtTheSameTimeShareOneConnection(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	clusters := fake.clusters(t)

	first, releaseFirst, err := clusters.connect(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	second, releaseSecond, err := clusters.connect(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	if first != second || fake.dialled != 1 {
		t.Errorf("%d connections were made", fake.dialled)
	}

	_, releaseOther, err := clusters.connect(t.Context(), "another")
	if err != nil {
		t.Fatal(err)
	}

	if fake.dialled != 2 {
		t.Error("another context shares the connection")
	}

	releaseFirst()
	releaseFirst()

	if fake.closed != 0 {
		t.Error("the connection was closed while it is in use")
	}

	releaseSecond()
	releaseOther()

	if fake.closed != 2 {
		t.Errorf("%d connections were closed, want 2", fake.closed)
	}
}

func TestPlanUsesWhatTheRefreshJustSaw(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	clusters := fake.clusters(t)
	state := stored(t, fake, "1.13.4", "")
	before := fake.dialled

	_, diagnostics := read(t.Context(), t, clusters, state)
	wellDone(t, diagnostics)
	_, diagnostics = planned(t, clusters, state, state)
	wellDone(t, diagnostics)

	if got := fake.dialled - before; got != 1 {
		t.Errorf("refresh and plan looked %d times, want once", got)
	}

	clusters.shared("").last.at = time.Now().Add(-lookAge)

	_, diagnostics = planned(t, clusters, state, state)
	wellDone(t, diagnostics)

	if got := fake.dialled - before; got != 2 {
		t.Errorf("a plan trusted an old look: %d looks", got)
	}

	_, diagnostics = apply(t, clusters, state, desired("1.13.4", ""))
	wellDone(t, diagnostics)

	if clusters.shared("").last != nil {
		t.Error("an upgrade left an observation behind")
	}
}
