// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// kept is a journal as a version of the provider has left it in clusters.
func kept(t *testing.T, file string) *corev1.ConfigMap {
	t.Helper()

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var object corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatal(err)
	}

	return &object
}

// keptJournal is what each of these journals says, by the names of the nodes.
func keptJournal() (entries map[string]cluster.Entry, due cluster.ManifestsDue, taken cluster.EtcdSnapshot) {
	const run = "7N4Y4465RCFRNKYKADYD4TCIH2"

	at := func(minute, second int) time.Time { return time.Date(2026, 3, 1, 22, minute, second, 0, time.UTC) }
	to, from, schematic := version.MustParse("1.13.4"), version.MustParse("1.12.6"), "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

	entries = map[string]cluster.Entry{
		"worker-2": {
			Node: "worker-2", Phase: cluster.PhaseRollingBack, Attempt: 2, BootID: "5b1e8e4f-27b0-4a0c-9f6e-0d6d6f1c3f57",
			Image: "factory.talos.dev/metal-installer/" + schematic + ":v1.13.4", Target: to, Previous: from,
			PreviousSchematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba", Schematic: schematic,
			Told: true, PreviousEtcd: "3.6.4", Run: run, Cordoned: true, Written: at(14, 9),
		},
		"worker-3": {
			Node: "worker-3", Phase: cluster.PhaseIntent, Attempt: 1, BootID: "0f0b5a52-8c2c-4f5e-a1d5-4d8e8f5a7c11",
			Image: "ghcr.io/siderolabs/installer:v1.13.4", Target: to, Run: run, Written: at(15, 10),
		},
	}

	return entries, cluster.ManifestsDue{Run: run, Written: at(1, 2)}, cluster.EtcdSnapshot{
		Path: "/var/backups/etcd-20260301T220000Z.db", Size: 20971520, Taken: at(0, 0), Run: run, Closed: true,
		SHA256: "4f1c3d0e5b6a79880123456789abcdef0123456789abcdeffedcba9876543210",
		Target: cluster.Target{Talos: to, Kubernetes: version.MustParse("1.35.2"), InstallerImage: "ghcr.io/siderolabs/installer"},
	}
}

// TestJournalsOfAllFormatsAreReadAndWrittenInTheNewestOne: clusters hold what
// earlier versions wrote, and a node may be armed.
func TestJournalsOfAllFormatsAreReadAndWrittenInTheNewestOne(t *testing.T) {
	newest := kept(t, "testdata/journal-format-2.yaml")
	entries, due, taken := keptJournal()

	nodes := []cluster.Node{
		{Name: "worker-2", Kube: &cluster.KubeNode{MachineID: "be871ac0d0dd31fa4caca753b0f3f1b2", SystemUUID: "5544971a-a37e-4171-aaf8-0399be97b390"}},
		{Name: "worker-3", Kube: &cluster.KubeNode{MachineID: "9f86d081884c7d659a2feaa0c55ad015", SystemUUID: "03000200-0400-0500-0006-000700080009"}},
		{Name: "worker-4", Kube: &cluster.KubeNode{MachineID: "60303ae22b998861bce3b28f33eec1be", SystemUUID: "03000200-0400-0500-0006-000700080009"}},
	}

	for _, file := range []string{"testdata/journal-format-1.yaml", "testdata/journal-format-2.yaml"} {
		api, other := live(t)

		if _, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), kept(t, file), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		read, err := api.Journal(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		for key, entry := range read.Entries {
			if entry != entries[entry.Node] {
				t.Errorf("%s: %s is %+v, want %+v", file, key, entry, entries[entry.Node])
			}
		}

		if len(read.Entries) != len(entries) || read.Manifests == nil || *read.Manifests != due || read.Snapshot == nil || *read.Snapshot != taken {
			t.Errorf("%s: read %+v", file, read)
		}

		if _, err := api.WriteJournal(t.Context(), read.Keyed(nodes)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		object, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Get(t.Context(), kubeapi.JournalName, metav1.GetOptions{})
		if err != nil || !maps.Equal(object.Data, newest.Data) {
			t.Errorf("%s is written as %q, %v; want %q: later versions read it", file, object.Data, err, newest.Data)
		}

		forget(t, other)
	}
}

// TestAJournalOfAnUnknownFormatIsRefusedAndKept: a later version may mean another
// machine by its keys.
func TestAJournalOfAnUnknownFormatIsRefusedAndKept(t *testing.T) {
	for _, format := range []string{"3", "0", "two", ""} {
		api, other := live(t)

		object := kept(t, "testdata/journal-format-2.yaml")
		object.Data["format"] = format

		if _, err := other.CoreV1().ConfigMaps(kubeapi.Namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		_, err := api.Journal(t.Context())
		if !errors.Is(err, kubeapi.ErrJournal) {
			t.Fatalf("format %q: %v", format, err)
		}

		for _, part := range []string{`has the format "` + format + `"`, "knows formats 1 to 2", "version of the provider that wrote it, or with a newer one"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("format %q: %v does not say %q", format, err, part)
			}
		}

		if kept, err := api.Forget(t.Context(), ""); err != nil || len(kept) != 1 || !strings.Contains(kept[0], "the format") {
			t.Errorf("format %q: forgotten, keeping %q, %v", format, kept, err)
		}

		forget(t, other)
	}
}
