// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
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
