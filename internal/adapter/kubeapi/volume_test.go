// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// attach attaches a volume to a node, with what keeps it there.
func attach(t *testing.T, other kubernetes.Interface, volume, node, trouble string) {
	t.Helper()

	attachments := other.StorageV1().VolumeAttachments()

	made, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + volume},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.example.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		// The context of the test is over by now.
		if err := attachments.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	made.Status.Attached = true
	if trouble != "" {
		made.Status.DetachError = &storagev1.VolumeError{Message: trouble}
	}

	if _, err := attachments.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// claim makes a claim to a volume.
func claim(t *testing.T, other kubernetes.Interface, name, volume string) {
	t.Helper()

	claims := other.CoreV1().PersistentVolumeClaims("default")

	_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: volume, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := claims.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestVolume_LeftAreThoseThatNoPodUses(t *testing.T) {
	api, other := live(t)

	if left, err := api.VolumesLeft(t.Context(), "worker-0"); err != nil || len(left) > 0 {
		t.Fatalf("before anything is attached: %v, %v", left, err)
	}

	attach(t, other, "pv-used", "worker-0", "")
	attach(t, other, "pv-ephemeral", "worker-0", "")
	attach(t, other, "pv-left", "worker-0", "")
	attach(t, other, "pv-stuck", "worker-0", "rpc error: code = Internal\n\tdesc = the disk is busy")
	attach(t, other, "pv-elsewhere", "worker-1", "")

	claim(t, other, "used", "pv-used")
	claim(t, other, "stays-scratch", "pv-ephemeral")
	claim(t, other, "left", "pv-left")

	addPodWith(t, other, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec: corev1.PodSpec{
			NodeName: "worker-0", Containers: []corev1.Container{{Name: "c", Image: "example.org/c:1"}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "used"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
						AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
						Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}},
					}},
				}}},
			},
		},
	})

	left, err := api.VolumesLeft(t.Context(), "worker-0")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"pv-left":  "pv-left (csi.example.com)",
		"pv-stuck": "pv-stuck (csi.example.com: rpc error: code = Internal desc = the disk is busy)",
	}

	for _, volume := range left {
		if text := volume.String(); want[volume.Name] != text {
			t.Errorf("it lists %q, want one of %v", text, want)
		}

		delete(want, volume.Name)
	}

	if len(want) > 0 {
		t.Errorf("it leaves out %v", want)
	}
}

func TestVolume_WhoMayNotListAttachmentsIsTold(t *testing.T) {
	api, _ := connect(t, status(http.StatusForbidden, "Forbidden", `volumeattachments.storage.k8s.io is forbidden: User "upgrader" cannot list resource "volumeattachments"`))

	if left, err := api.VolumesLeft(t.Context(), "worker-0"); !errors.Is(err, cluster.ErrDenied) || len(left) > 0 {
		t.Errorf("got %v, %v", left, err)
	}
}
