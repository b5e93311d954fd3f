// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// The published object. What removes it (a destroy) knows it by the label and
// by the ID of its cluster.
const (
	ConfigMapNamespace = "kube-system"
	ConfigMapName      = "talosupgrade"
	managedByLabel     = "app.kubernetes.io/managed-by"
	managedBy          = "terraform-provider-talosupgrade"
	clusterAnnotation  = "talosupgrade.vitistack.io/cluster-id"
)

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

// ConfigMapStore keeps the annotations on the ConfigMap
// kube-system/talosupgrade, which it creates when it is missing.
type ConfigMapStore struct {
	client    rest.Interface
	clusterID string
	// identity is the UID of the object as it was last read.
	identity atomic.Value
}

var _ identifier = (*ConfigMapStore)(nil)

// NewConfigMapStore uses the connection of another client of the same API
// server, and ends with it. An object that it creates is marked as ours and as
// being about the cluster with the given ID.
func NewConfigMapStore(config *rest.Config, httpClient *http.Client, clusterID string) (*ConfigMapStore, error) {
	client, err := coreClient(config, httpClient)
	if err != nil {
		return nil, err
	}

	return &ConfigMapStore{client: client, clusterID: clusterID}, nil
}

// String names the object.
func (s *ConfigMapStore) String() string {
	return "ConfigMap " + ConfigMapNamespace + "/" + ConfigMapName
}

// Patch implements [Store].
func (s *ConfigMapStore) Patch(ctx context.Context, changes map[string]*string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	err := s.patch(ctx, changes)
	if !apierrors.IsNotFound(err) {
		return meaning("change "+s.String(), true, err)
	}

	err = s.create(ctx, changes)
	if apierrors.IsAlreadyExists(err) {
		err = s.patch(ctx, changes)
	}

	return meaning("create "+s.String(), true, err)
}

// Read implements [Store].
func (s *ConfigMapStore) Read(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	var object corev1.ConfigMap

	err := s.client.Get().Namespace(ConfigMapNamespace).Resource("configmaps").Name(ConfigMapName).MaxRetries(0).Do(ctx).Into(&object)
	if apierrors.IsNotFound(err) {
		s.identity.Store("")

		return nil, nil
	}

	if err != nil {
		return nil, meaning("read "+s.String(), false, err)
	}

	s.identity.Store(string(object.UID))

	return object.Annotations, nil
}

// Identity is the UID of the object as it was last read.
func (s *ConfigMapStore) Identity() string {
	identity, _ := s.identity.Load().(string)

	return identity
}

// patch leaves labels alone: an object of that name that somebody else made
// does not become ours by being annotated.
func (s *ConfigMapStore) patch(ctx context.Context, changes map[string]*string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return err
	}

	return s.client.Patch(types.MergePatchType).Namespace(ConfigMapNamespace).Resource("configmaps").Name(ConfigMapName).
		Body(body).MaxRetries(0).Do(ctx).Error()
}

func (s *ConfigMapStore) create(ctx context.Context, changes map[string]*string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace:   ConfigMapNamespace,
		Name:        ConfigMapName,
		Labels:      map[string]string{managedByLabel: managedBy},
		Annotations: map[string]string{},
	}}

	if s.clusterID != "" {
		object.Annotations[clusterAnnotation] = s.clusterID
	}

	for key, value := range changes {
		if value != nil {
			object.Annotations[key] = *value
		}
	}

	return s.client.Post().Namespace(ConfigMapNamespace).Resource("configmaps").Body(object).MaxRetries(0).Do(ctx).Error()
}
