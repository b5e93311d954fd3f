// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// upgradesControlPlane upgrades Talos and then Kubernetes on the only control plane, which takes its own API down.
// Before Talos is touched, a snapshot of etcd has to be saved.
func (w *world) upgradesControlPlane(ctx context.Context, t *testing.T) {
	m, snapshots := w.machines[0], t.TempDir()
	before := w.boot(ctx, t)

	talos := request{
		talos: nextTalos, arguments: fmt.Sprintf("  node_timeout = \"1h\"\n  etcd_snapshot = { directory = %q }\n", snapshots),
	}

	f := w.terraform(t, talos.resource())
	f.plan(ctx, t).must(somethingToDo, nextTalos)

	apply := f.begin(ctx, t)
	apply.during(w, m.name+" has installed", func() bool { return m.printed(t, installed) > 0 })
	apply.kill()

	if saved, err := filepath.Glob(filepath.Join(snapshots, "*")); err != nil || len(saved) == 0 {
		t.Errorf("no snapshot was saved: %v", err)
	} else if info, err := os.Stat(saved[0]); err != nil || info.Size() == 0 {
		t.Errorf("the snapshot %s is empty: %v", saved[0], err)
	}

	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, nextTalos, 1, before[m.name])
	w.mustHaveNoJournal(ctx, t)

	f.write(t, "  talosconfig_path = "+quote(w.talosconfig)+"\n",
		fmt.Sprintf("resource \"talosupgrade_cluster\" \"this\" {\n  talos_version      = %q\n  kubernetes_version = %q\n  node_timeout       = \"1h\"\n}\n",
			nextTalos, kubernetesVersions[1]))
	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	if found := w.kubernetesThatRuns(t); found != kubernetesVersions[1].String() {
		t.Errorf("the API server is %s, want %s", found, kubernetesVersions[1])
	}
}
