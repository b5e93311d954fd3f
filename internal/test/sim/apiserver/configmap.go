// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// prefixPublished is that of the annotations that tell how an upgrade goes.
	prefixPublished = "upgrade.vitistack.io/"
	// mostOfData bounds what a ConfigMap holds, in bytes.
	mostOfData = 1 << 20

	keptJournal   = resourceConfigMaps + "/" + journalName
	keptPublished = resourceConfigMaps + "/" + publishedName
)

// written is the journal as a client wrote it, good for one resource version:
// what the cluster makes of it may be less.
type written struct {
	version string
	data    map[string]string
}

func (s *Server) configMaps() ([]object, error) {
	var objects []object

	journal := s.cluster.Journal()

	if journal.ResourceVersion == "" {
		delete(s.kept, keptJournal)
	} else {
		data := maps.Clone(s.written.data)

		if s.written.version != journal.ResourceVersion {
			var err error
			if data, err = journalData(journal); err != nil {
				return nil, err
			}
		}

		objects = append(objects, s.configMap(keptJournal, journalName, journal.ResourceVersion, data, nil))
	}

	noted := s.cluster.Annotations()
	if _, made := s.kept[keptPublished]; made || len(noted) > 0 {
		objects = append(objects, s.configMap(keptPublished, publishedName, "", nil, noted))
	}

	return objects, nil
}

func (s *Server) configMap(kept, name, version string, data, noted map[string]string) *corev1.ConfigMap {
	known := s.standing(kept)

	if known.annotations == nil {
		known.annotations = map[string]string{}
	}

	for key, value := range noted {
		known.annotations[prefixPublished+key] = value
	}

	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceSystem, Name: name, ResourceVersion: version, Labels: known.labels, Annotations: known.annotations,
		},
		Data: data,
	}
}

func (s *Server) createConfigMap(asked *call, wanted object) error {
	return s.putConfigMap(asked, wanted, "")
}

func (s *Server) updateConfigMap(asked *call, current, wanted object) error {
	return s.putConfigMap(asked, wanted, current.GetResourceVersion())
}

func (s *Server) putConfigMap(asked *call, wanted object, resourceVersion string) error {
	object, isConfigMap := wanted.(*corev1.ConfigMap)
	if !isConfigMap {
		return apierrors.NewInternalError(errors.New("a ConfigMap is expected"))
	}

	if why := faultOf(object); why != "" {
		return invalid(s.find(asked.target), asked.Name, why)
	}

	switch {
	case asked.Namespace != namespaceSystem:
		return strange(asked)
	case asked.Name == journalName:
		return s.putJournal(asked, object, resourceVersion)
	case asked.Name == publishedName && len(object.Data) == 0:
		s.publish(asked, object)

		return nil
	default:
		return strange(asked)
	}
}

// faultOf is why the content of a ConfigMap is refused; empty where it is not.
func faultOf(object *corev1.ConfigMap) string {
	size := 0

	for key, value := range object.Data {
		size += len(value)

		if faults := validation.IsConfigMapKey(key); len(faults) > 0 {
			return "data[" + key + "]: " + strings.Join(faults, ", ")
		}
	}

	if size > mostOfData {
		return "data: Too long: may not be more than 1048576 bytes"
	}

	return ""
}

func (s *Server) putJournal(asked *call, object *corev1.ConfigMap, resourceVersion string) error {
	before := s.cluster.Journal()
	journal := journalFrom(object.Data)
	journal.ResourceVersion = resourceVersion

	after, err := s.cluster.PutJournal(asked.Client, journal)
	if err != nil {
		return s.conflicting(asked, err)
	}

	old, err := journalData(before)
	if err != nil {
		return err
	}

	asked.told = resourceVersion == "" || !maps.Equal(old, object.Data)
	s.kept[keptJournal] = metadataOf(object)
	s.written = written{version: after.ResourceVersion, data: maps.Clone(object.Data)}

	return nil
}

// publish keeps the annotations of the published object. Those that tell how the
// upgrade goes are the cluster's, but for empty ones, which it does not know.
func (s *Server) publish(asked *call, object *corev1.ConfigMap) {
	given := metadata{labels: object.GetLabels(), annotations: map[string]string{}}
	changes := map[string]string{}
	noted := s.cluster.Annotations()

	for key := range noted {
		changes[key] = ""
	}

	for name, value := range object.GetAnnotations() {
		if key, published := strings.CutPrefix(name, prefixPublished); published && value != "" {
			changes[key] = value
		} else {
			given.annotations[name] = value
		}
	}

	s.kept[keptPublished] = given
	s.cluster.PutAnnotations(asked.Client, changes)
	asked.told = !maps.Equal(noted, s.cluster.Annotations())
}

func (s *Server) removeConfigMap(asked *call, current object) error {
	if asked.Name == journalName {
		if err := s.cluster.DropJournal(asked.Client, current.GetResourceVersion()); err != nil {
			return s.conflicting(asked, err)
		}

		held, _ := current.(*corev1.ConfigMap)
		asked.told = held != nil && len(held.Data) > 0
		delete(s.kept, keptJournal)

		return nil
	}

	delete(s.kept, keptPublished)
	changes := map[string]string{}

	for key := range s.cluster.Annotations() {
		changes[key] = ""
	}

	s.cluster.PutAnnotations(asked.Client, changes)
	asked.told = len(changes) > 0

	return nil
}

// The keys of the journal that are not named after a machine.
const (
	keyHolder    = "holder"
	keyManifests = "manifests"
	keySnapshot  = "etcd-snapshot"
	keyFormat    = "format"
	// format is the one of journals whose entries are named after machine IDs.
	format = 2
	// phaseUnreadable is what the cluster knows about an entry that cannot be
	// read. The ConfigMap has it as it was written.
	phaseUnreadable cluster.Phase = "unreadable"
)

// storedEntry is an entry as clients write it.
type storedEntry struct {
	Node              string        `json:"node"`
	Phase             cluster.Phase `json:"phase"`
	Attempt           int           `json:"attempt"`
	BootID            string        `json:"bootID"`
	Image             string        `json:"image"`
	TargetText        string        `json:"target"`
	PreviousText      string        `json:"previous,omitempty"`
	PreviousSchematic string        `json:"previousSchematic,omitempty"`
	PreviousEtcd      string        `json:"previousEtcd,omitempty"`
	Schematic         string        `json:"schematic,omitempty"`
	Told              bool          `json:"told,omitempty"`
	Asked             string        `json:"asked,omitempty"`
	Reason            string        `json:"reason,omitempty"`
	Retry             bool          `json:"retry,omitempty"`
	ConfirmedBootID   string        `json:"confirmedBootID,omitempty"`
	Run               string        `json:"run"`
	Cordoned          bool          `json:"cordoned"`
	Written           time.Time     `json:"written"`
}

type storedManifests struct {
	Run     string    `json:"run"`
	Written time.Time `json:"written"`
}

type storedSnapshot struct {
	Path           string    `json:"path"`
	Size           int64     `json:"size"`
	SHA256         string    `json:"sha256"`
	Taken          time.Time `json:"taken"`
	Talos          string    `json:"talos,omitempty"`
	Kubernetes     string    `json:"kubernetes,omitempty"`
	InstallerImage string    `json:"installerImage,omitempty"`
	Run            string    `json:"run"`
	Closed         bool      `json:"closed,omitempty"`
}

// journalData is the journal as a ConfigMap holds it.
func journalData(journal cluster.Journal) (map[string]string, error) {
	stored := map[string]any{keyFormat: format}

	for key, entry := range journal.Entries {
		stored[key] = storedEntry{
			Node: entry.Node, Phase: entry.Phase, Attempt: entry.Attempt, BootID: entry.BootID, Image: entry.Image,
			TargetText: text(entry.Target), PreviousText: text(entry.Previous),
			PreviousSchematic: entry.PreviousSchematic, PreviousEtcd: entry.PreviousEtcd,
			Schematic: entry.Schematic, Told: entry.Told,
			Asked: entry.Asked, Reason: entry.Reason, Retry: entry.Retry, ConfirmedBootID: entry.ConfirmedBootID,
			Run: entry.Run, Cordoned: entry.Cordoned, Written: entry.Written.UTC(),
		}
	}

	if due := journal.Manifests; due != nil {
		stored[keyManifests] = storedManifests{Run: due.Run, Written: due.Written.UTC()}
	}

	if taken := journal.Snapshot; taken != nil {
		stored[keySnapshot] = storedSnapshot{
			Path: taken.Path, Size: taken.Size, SHA256: taken.SHA256, Taken: taken.Taken.UTC(),
			Talos: text(taken.Target.Talos), Kubernetes: text(taken.Target.Kubernetes), InstallerImage: taken.Target.InstallerImage,
			Run: taken.Run, Closed: taken.Closed,
		}
	}

	data := make(map[string]string, len(stored))

	for key, value := range stored {
		written, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}

		data[key] = string(written)
	}

	if journal.Holder != "" {
		data[keyHolder] = journal.Holder
	}

	return data, nil
}

// journalFrom reads what clients write. The API server takes anything, so what
// cannot be read is no error.
func journalFrom(data map[string]string) cluster.Journal {
	journal := cluster.Journal{Entries: map[string]cluster.Entry{}}

	for key, value := range data {
		switch key {
		case keyHolder:
			journal.Holder = value
		case keyManifests:
			var stored storedManifests
			if json.Unmarshal([]byte(value), &stored) == nil {
				journal.Manifests = &cluster.ManifestsDue{Run: stored.Run, Written: stored.Written}
			}
		case keySnapshot:
			var stored storedSnapshot
			if json.Unmarshal([]byte(value), &stored) == nil {
				journal.Snapshot = &cluster.EtcdSnapshot{
					Path: stored.Path, Size: stored.Size, SHA256: stored.SHA256, Taken: stored.Taken, Run: stored.Run, Closed: stored.Closed,
					Target: cluster.Target{
						Talos: parsed(stored.Talos), Kubernetes: parsed(stored.Kubernetes), InstallerImage: stored.InstallerImage,
					},
				}
			}
		case keyFormat:
		default:
			journal.Entries[key] = entryFrom(value)
		}
	}

	return journal
}

func entryFrom(value string) cluster.Entry {
	var stored storedEntry
	if json.Unmarshal([]byte(value), &stored) != nil {
		return cluster.Entry{Phase: phaseUnreadable}
	}

	return cluster.Entry{
		Node: stored.Node, Phase: stored.Phase, Attempt: stored.Attempt, BootID: stored.BootID, Image: stored.Image,
		Target: parsed(stored.TargetText), Previous: parsed(stored.PreviousText),
		PreviousSchematic: stored.PreviousSchematic, PreviousEtcd: stored.PreviousEtcd,
		Schematic: stored.Schematic, Told: stored.Told,
		Asked: stored.Asked, Reason: stored.Reason, Retry: stored.Retry, ConfirmedBootID: stored.ConfirmedBootID,
		Run: stored.Run, Cordoned: stored.Cordoned, Written: stored.Written,
	}
}

// text is a version as it is stored; empty for none.
func text(of version.Version) string {
	if of.IsZero() {
		return ""
	}

	return of.String()
}

// parsed is a stored version, zero for what is none.
func parsed(stored string) version.Version {
	read, err := version.Parse(stored)
	if err != nil {
		return version.Version{}
	}

	return read
}
