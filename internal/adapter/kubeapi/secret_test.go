// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestSecret_IsReadAndChangedAsItWasRead(t *testing.T) {
	api, other := live(t)
	secrets := other.CoreV1().Secrets("default")

	for _, name := range []string{"tenant-2", "tenant-1"} {
		_, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"cluster": "x1"}},
			Data:       map[string][]byte{"talos_version": []byte("v1.12.6"), "talosconfig": []byte("hunter2")},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = secrets.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	}

	found, err := api.Secrets(t.Context(), "default", "cluster=x1")
	if err != nil || len(found) != 2 || found[0].Name != "tenant-1" || found[1].Name != "tenant-2" {
		t.Fatalf("%d Secrets, %v", len(found), err)
	}

	if none, err := api.Secrets(t.Context(), "default", "cluster=x2"); err != nil || len(none) != 0 {
		t.Errorf("%d Secrets of another cluster, %v", len(none), err)
	}

	read, err := api.Secret(t.Context(), "default", "tenant-1")
	if err != nil || read.Namespace != "default" || string(read.Data["talosconfig"]) != "hunter2" || read.ResourceVersion != found[0].ResourceVersion {
		t.Fatalf("the Secret was not read as it was listed: %v", err)
	}

	if err := api.PatchSecret(t.Context(), read, map[string][]byte{"talos_version": []byte("1.13.4"), "upgrade_in_progress": []byte("false")}); err != nil {
		t.Fatal(err)
	}

	after, err := api.Secret(t.Context(), "default", "tenant-1")
	if err != nil || string(after.Data["talos_version"]) != "1.13.4" || string(after.Data["upgrade_in_progress"]) != "false" || string(after.Data["talosconfig"]) != "hunter2" {
		t.Errorf("the Secret is not as it was changed: %v", err)
	}

	if err := api.PatchSecret(t.Context(), read, map[string][]byte{"talos_version": []byte("1.12.6")}); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("as it was before: %v, want a conflict", err)
	}

	if err := api.PatchSecret(t.Context(), after, map[string][]byte{"no such key!": []byte("hunter3")}); !errors.Is(err, cluster.ErrRefused) || strings.Contains(err.Error(), "hunter") {
		t.Errorf("an impossible key: %v, want it refused", err)
	}

	if err := secrets.Delete(t.Context(), "tenant-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := api.PatchSecret(t.Context(), after, map[string][]byte{"talos_version": []byte("1.13.4")}); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("deleted since: %v, want a conflict", err)
	}

	if _, err := api.Secret(t.Context(), "default", "tenant-1"); !errors.Is(err, cluster.ErrNotFound) || !strings.Contains(err.Error(), "no such object") {
		t.Errorf("deleted: %v, want it not found", err)
	}
}
