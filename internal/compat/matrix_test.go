// SPDX-License-Identifier: MPL-2.0

package compat_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// machineryNewest is the newest release line that the machinery version in
// go.mod knows; the matrix may be ahead of it, never behind.
const machineryNewest = 14

// TestMatrixAgreesWithMachinery holds every cell that machinery can answer to
// its answer: hosts and Kubernetes versions on both sides of every border.
func TestMatrixAgreesWithMachinery(t *testing.T) {
	t.Parallel()

	_, newest := compat.TalosMinors()
	if newest.Minor < machineryNewest {
		t.Fatalf("the matrix ends at %s, machinery at 1.%d", newest, machineryNewest)
	}

	for target := 2; target <= machineryNewest; target++ {
		targetText := fmt.Sprintf("1.%d.0", target)
		theirs := parseTalos(t, targetText)

		for host := range 20 {
			hostText := fmt.Sprintf("1.%d.3", host)
			want := theirs.UpgradeableFrom(parseTalos(t, hostText)) == nil
			got := compat.Upgradeable(version.MustParse(hostText), version.MustParse(targetText)) == nil

			if got != want {
				t.Errorf("upgrade %s to %s: %t, machinery says %t", hostText, targetText, got, want)
			}
		}

		for kube := 15; kube < 45; kube++ {
			kubeText := fmt.Sprintf("1.%d.7", kube)

			parsed, err := compatibility.ParseKubernetesVersion(kubeText)
			if err != nil {
				t.Fatal(err)
			}

			want := parsed.SupportedWith(theirs) == nil
			got := compat.Supports(version.MustParse(targetText), version.MustParse(kubeText)) == nil

			if got != want {
				t.Errorf("Talos %s with Kubernetes %s: %t, machinery says %t", targetText, kubeText, got, want)
			}
		}
	}
}

func TestUnknownMinorIsToldFromUnsupported(t *testing.T) {
	t.Parallel()

	err := compat.Upgradeable(version.MustParse("1.13.0"), version.MustParse("1.99.0"))
	if !errors.Is(err, compat.ErrUnknownMinor) {
		t.Errorf("upgrade to 1.99.0: %v, want ErrUnknownMinor", err)
	}

	err = compat.Upgradeable(version.MustParse("1.8.0"), version.MustParse("1.13.0"))
	if !errors.Is(err, compat.ErrUnsupported) {
		t.Errorf("upgrade 1.8.0 to 1.13.0: %v, want ErrUnsupported", err)
	}

	err = compat.Supports(version.MustParse("1.12.6"), version.MustParse("1.36.0"))
	if !errors.Is(err, compat.ErrUnsupported) {
		t.Errorf("1.12.6 with 1.36.0: %v, want ErrUnsupported", err)
	}
}

func parseTalos(t *testing.T, text string) *compatibility.TalosVersion {
	t.Helper()

	parsed, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: "v" + text})
	if err != nil {
		t.Fatal(err)
	}

	return parsed
}
