// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestDiff_SecretsStayOut(t *testing.T) {
	r := newRig(t)

	for _, options := range []cluster.ManifestOptions{serverSide, {}} {
		for i, value := range []string{"hunter2", "hunter3"} {
			r.renders(fmt.Sprintf(token, value))

			for name, call := range map[string]func() ([]cluster.ManifestChange, error){
				"diff": func() ([]cluster.ManifestChange, error) { return r.Diff(t.Context(), controlPlane, options) },
				"sync": func() ([]cluster.ManifestChange, error) { return r.Apply(t.Context(), controlPlane, options) },
			} {
				changes, err := call()
				if err != nil {
					t.Fatal(err)
				}

				for _, change := range changes {
					if strings.Contains(change.Diff, "value") || !strings.Contains(change.Diff, "not shown") {
						t.Errorf("%s %d of %+v shows %q", name, i, options, change.Diff)
					}
				}
			}
		}
	}
}

func TestDiff_LongOnesAreCutShort(t *testing.T) {
	r := newRig(t)

	data := map[string]string{}
	for i := range 500 {
		data[fmt.Sprintf("key-%03d", i)] = "v"
	}

	r.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: data})
	r.renders(settings)

	changes, err := r.Diff(t.Context(), controlPlane, cluster.ManifestOptions{})
	r.expect("diff", changes, err, "change ConfigMap/NAMESPACE/settings")

	lines := strings.Split(strings.TrimSuffix(changes[0].Diff, "\n"), "\n")
	if len(lines) != 201 || !strings.HasSuffix(lines[200], "more lines") || !strings.HasPrefix(lines[200], "... 3") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestSync_LegacyReplacesObjectsAndKeepsNoInventory(t *testing.T) {
	r := newRig(t)
	r.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"mode": "old"}})
	r.renders(settings, extra, proxy)

	legacy := cluster.ManifestOptions{}
	want := []string{"create ConfigMap/NAMESPACE/extra", "change ConfigMap/NAMESPACE/settings", "create DaemonSet/NAMESPACE/proxy"}

	changes, err := r.Diff(t.Context(), controlPlane, legacy)
	r.expect("diff", changes, err, want...)

	changes, err = r.Apply(t.Context(), controlPlane, legacy)
	r.expect("sync", changes, err, want...)

	if got := r.configMap("settings").Data["mode"]; got != "new" {
		t.Errorf("mode is %q", got)
	}

	changes, err = r.Diff(t.Context(), controlPlane, legacy)
	r.expect("diff after a sync", changes, err)

	if keys := r.inventory(); keys != nil {
		t.Errorf("inventory %q", keys)
	}
}
