// SPDX-License-Identifier: MPL-2.0

package compat_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// machineryNewest is the newest minor version that the machinery version in
// go.mod knows; the matrix may be ahead of it, never behind.
const machineryNewest = 14

// TestMatrix_AgreesWithMachinery holds every cell that machinery can answer to
// its answer: hosts and Kubernetes versions on both sides of every border.
func TestMatrix_AgreesWithMachinery(t *testing.T) {
	t.Parallel()

	oldest, newest := compat.TalosMinors()
	if newest.Minor < machineryNewest {
		t.Fatalf("the matrix ends at %s, machinery at 1.%d", newest, machineryNewest)
	}

	for target := int(oldest.Minor); target <= machineryNewest; target++ {
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

func TestMatrix_AnswersTellUnknownFromNewerFromUnsupported(t *testing.T) {
	t.Parallel()

	upgrade := func(from, to string) error { return compat.Upgradeable(version.MustParse(from), version.MustParse(to)) }
	pair := func(talos, kubernetes string) error {
		return compat.Supports(version.MustParse(talos), version.MustParse(kubernetes))
	}
	sentinels := map[string]error{
		"ErrUnknownMinor": compat.ErrUnknownMinor, "ErrNewer": compat.ErrNewer, "ErrUnsupported": compat.ErrUnsupported,
	}

	for question, test := range map[string]struct {
		err  error
		want []string
	}{
		"upgrade to a minor beyond the matrix":             {upgrade("1.13.0", "1.99.0"), []string{"ErrUnknownMinor", "ErrNewer"}},
		"upgrade to another major":                         {upgrade("1.13.0", "2.0.0"), []string{"ErrUnknownMinor", "ErrNewer"}},
		"upgrade to a minor before the matrix":             {upgrade("1.0.0", "1.1.0"), []string{"ErrUnknownMinor"}},
		"upgrade from too far away":                        {upgrade("1.8.0", "1.13.0"), []string{"ErrUnsupported"}},
		"Kubernetes newer than its Talos":                  {pair("1.12.6", "1.36.0"), []string{"ErrUnsupported"}},
		"Kubernetes older than its Talos":                  {pair("1.12.6", "1.29.9"), []string{"ErrUnsupported"}},
		"Kubernetes beyond the matrix with the last Talos": {pair("1.15.0", "1.39.0"), []string{"ErrUnknownMinor", "ErrNewer"}},
		"Kubernetes beyond the matrix with an older Talos": {pair("1.14.0", "1.39.0"), []string{"ErrUnsupported"}},
		"Talos beyond the matrix":                          {pair("1.16.0", "1.36.0"), []string{"ErrUnknownMinor", "ErrNewer"}},
		"a pair that goes together":                        {pair("1.12.6", "1.35.0"), nil},
		"an upgrade of one minor":                          {upgrade("1.12.6", "1.13.0-rc.1"), nil},
	} {
		t.Run(question, func(t *testing.T) {
			t.Parallel()

			if (test.err == nil) != (test.want == nil) {
				t.Fatalf("error: %v", test.err)
			}

			for name, sentinel := range sentinels {
				if got := errors.Is(test.err, sentinel); got != slices.Contains(test.want, name) {
					t.Errorf("%v is %s: %t", test.err, name, got)
				}
			}
		})
	}
}

// TestMatrix_TalosMinorsForAgreesWithTheTable reads the table the other way round.
func TestMatrix_TalosMinorsForAgreesWithTheTable(t *testing.T) {
	t.Parallel()

	oldest, newest := compat.KubernetesRange()

	for kubernetes := oldest; kubernetes.Compare(newest) <= 0; kubernetes = kubernetes.Next() {
		var want []version.Minor

		for _, row := range compat.Rows() {
			if kubernetes.Compare(row.KubernetesMin) >= 0 && kubernetes.Compare(row.KubernetesMax) <= 0 {
				want = append(want, row.Talos)
			}
		}

		got, err := compat.TalosMinorsFor(kubernetes)
		if err != nil || len(got) == 0 || !slices.Equal(got, want) {
			t.Errorf("Kubernetes %s: %v, %v; want %v", kubernetes, got, err, want)
		}
	}

	if _, err := compat.TalosMinorsFor(newest.Next()); !errors.Is(err, compat.ErrNewer) {
		t.Errorf("Kubernetes %s: %v, want ErrNewer", newest.Next(), err)
	}

	if _, err := compat.TalosMinorsFor(version.Minor{Major: 1, Minor: 1}); !errors.Is(err, compat.ErrUnknownMinor) || errors.Is(err, compat.ErrNewer) {
		t.Errorf("Kubernetes 1.1: %v, want ErrUnknownMinor alone", err)
	}
}

// TestMatrix_HasNoHoles is what finding a row by its number relies on, and
// planning on the newest Kubernetes never going down.
func TestMatrix_HasNoHoles(t *testing.T) {
	t.Parallel()

	rows := compat.Rows()

	for index, row := range rows {
		if found, err := compat.Find(row.Talos); err != nil || found != row {
			t.Errorf("Find(%s): %v, %v; want %v", row.Talos, found, err, row)
		}

		if index == 0 {
			continue
		}

		if before := rows[index-1]; row.Talos != before.Talos.Next() || row.KubernetesMax.Compare(before.KubernetesMax) < 0 {
			t.Errorf("%v follows %v", row, before)
		}
	}
}

func BenchmarkSupports(b *testing.B) {
	talos, kubernetes := version.MustParse("1.14.1"), version.MustParse("1.36.0")

	b.ReportAllocs()

	for b.Loop() {
		if err := compat.Supports(talos, kubernetes); err != nil {
			b.Fatal(err)
		}
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
