// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAccBudgetThatNeverGivesIsNamedBeforeTheFirstCordon: worker-1 would be second, and still nothing may happen to
// worker-0.
func TestAccBudgetThatNeverGivesIsNamedBeforeTheFirstCordon(t *testing.T) {
	fullOverReal(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`)
	s.settle()

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	// Not every plan checks the workloads.
	w.plan().mustSucceed(2).mustNotWarn("blocks-drain-of-worker-1")

	w.apply().mustFail("drain", "worker-1", "workload/blocks-drain-of-worker-1")
	s.untouched("cp-0", "worker-0", "worker-1")

	if cordons := s.cordons(); cordons != 0 {
		t.Errorf("%d nodes were cordoned", cordons)
	}
}

// TestAccVolumesAreWaitedFor: a volume that no Pod on the node uses stays attached. If wait_for_volumes is "required",
// the run has to fail after it has waited; by default it has to warn and go on.
func TestAccVolumesAreWaitedFor(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	volume, attachments := "pv-db", s.someone().StorageV1().VolumeAttachments()

	_, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-db"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "csi.example.com", NodeName: "worker-0", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\ndrain = { wait_for_volumes = \"required\" }")
	w.apply().mustFail("after 2m0s volumes were still attached to the node that no pod on it uses: pv-db (csi.example.com)", "kubectl get volumeattachments")
	s.untouched("cp-0", "worker-0", "worker-1")
	s.wantCordoned()

	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0).mustWarn("pv-db (csi.example.com). The upgrade goes on, and pods on other nodes may have to wait for these volumes.")
	s.wantUpgraded("1.13.4", map[string]int{"worker-0": 1, "worker-1": 1, "cp-0": 1})

	if _, err := attachments.Get(t.Context(), "csi-db", metav1.GetOptions{}); err != nil {
		t.Errorf("the attachment was not left alone: %v", err)
	}
}
