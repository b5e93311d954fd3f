// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// golden compares the text with a file in testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()

	file := filepath.Join("testdata", name)

	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestRollIsShownAsATable(t *testing.T) {
	from, to := version.MustParse("1.12.6"), version.MustParse("1.13.4")
	made := plan.Plan{AtTarget: []string{"worker-1"}, Steps: []plan.Step{
		{Node: "worker-10", Role: cluster.Worker, From: from, To: to, Image: "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.4", Finish: true},
		{Node: "worker-2", Role: cluster.Worker, From: from, To: to, Image: "ghcr.io/siderolabs/installer:v1.13.4"},
		{Node: "cp-0", Role: cluster.ControlPlane, From: from, To: to, Image: "ghcr.io/siderolabs/installer:v1.13.4"},
	}}

	warning := rollWarning(made, `talosconfig context "demo"`)
	golden(t, "roll_table.golden", warning.Summary()+"\n\n"+warning.Detail()+"\n")
}
