// SPDX-License-Identifier: MPL-2.0

package health_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestConfirmation_ComparesTheTagWithWhatRuns: after a rollback it names what runs, in
// whatever case.
func TestConfirmation_ComparesTheTagWithWhatRuns(t *testing.T) {
	t.Parallel()

	for tag, want := range map[string]health.Confirmation{
		"Talos-v1.13.9.efi":       health.Installed,
		"talos-v1.13.9~3.efi":     health.Installed,
		"Talos-v1.13.10.efi":      health.SentBack,
		"talos-v1.13.10.efi":      health.SentBack,
		"TALOS-V1.13.10~1.EFI":    health.SentBack,
		"Talos-v1.13.10-rc.1.efi": health.Installed,
		"A":                       health.Undecided,
		"B":                       health.Undecided,
		"other.efi":               health.Undecided,
		"":                        health.Undecided,
	} {
		machine := cluster.Machine{Talos: version.MustParse("1.13.10"), UpgradePending: true, UpgradeTag: tag}
		if got := health.ConfirmationOf(machine); got != want {
			t.Errorf("%q: %d, want %d", tag, got, want)
		}

		// A rollback of what was rolled back would start the system that failed.
		remedy := health.UnconfirmedRemedy(machine, "10.0.0.1")
		if !strings.HasPrefix(remedy, "Wait until it is ready") || strings.Contains(remedy, "talosctl -n 10.0.0.1 rollback") != (want == health.Installed) {
			t.Errorf("%q: %s", tag, remedy)
		}

		wording.NoteFindings(t, []cluster.Finding{{Check: cluster.CheckPendingInstall, Node: "cp-0", Found: health.UnconfirmedFound(machine), Remedy: remedy}})
	}

	if got := health.ConfirmationOf(cluster.Machine{UpgradePending: true, UpgradeTag: "Talos-v1.13.9.efi"}); got != health.Undecided {
		t.Errorf("without a version: %d", got)
	}

	if got := health.ConfirmationOf(cluster.Machine{TalosTag: "v1.13-acme", UpgradePending: true, UpgradeTag: "talos-v1.13-acme.efi"}); got != health.SentBack {
		t.Errorf("with a version of a vendor: %d", got)
	}
}
