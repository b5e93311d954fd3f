// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	// volumeDriver is the driver that attaches all volumes.
	volumeDriver = "csi.example.com"
	// detachTime is how long a volume stays attached to a node after its last pod there.
	detachTime = 14137 * time.Millisecond
)

// attachment is a volume that is attached to a node.
type attachment struct {
	volume, node string
	// unused is since when no pod of the node uses it; zero while one does.
	unused time.Time
}

func (a attachment) name() string { return "csi-" + a.volume + "-" + a.node }

// KeepAttached makes volumes stay attached for that long after their last pods.
func (s *Server) KeepAttached(length time.Duration) {
	s.lock()
	defer s.mu.Unlock()

	s.detaches = length
}

// showVolumes attaches the volumes of pods to their nodes, and detaches those that no pod of their node has used
// for long enough.
func (s *Server) showVolumes() {
	for _, p := range s.workloads {
		if p.Volume == "" || p.node == "" {
			continue
		}

		wanted := attachment{volume: p.Volume, node: p.node}
		if !slices.ContainsFunc(s.attached, func(a *attachment) bool { return a.name() == wanted.name() }) {
			s.attach(wanted)
		}
	}

	now := s.now()

	s.attached = slices.DeleteFunc(s.attached, func(a *attachment) bool {
		used := slices.ContainsFunc(s.workloads, func(p *workload) bool { return p.Volume == a.volume && p.node == a.node })

		switch {
		case used:
			a.unused = time.Time{}
		case a.unused.IsZero():
			a.unused = now
			s.recordVolume(a, "unused")
		case now.Sub(a.unused) >= s.detaches:
			s.drop(itself(), s.attachments(), key{name: a.name()})
			s.recordVolume(a, "detached")

			return true
		}

		return false
	})
}

// attach attaches a volume, to which a claim with the same name is bound.
func (s *Server) attach(wanted attachment) {
	s.attached = append(s.attached, &wanted)

	s.commit(itself(), s.core("persistentvolumeclaims"), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: wanted.volume},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: wanted.volume},
	})
	s.commit(itself(), s.attachments(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: wanted.name()},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: volumeDriver, NodeName: wanted.node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &wanted.volume},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	})
	s.recordVolume(&wanted, "attached")
}

func (s *Server) recordVolume(a *attachment, state string) {
	s.record(a.node, history.KindVolume, map[string]string{"volume": a.volume, "state": state})
}
