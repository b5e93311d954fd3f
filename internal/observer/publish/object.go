// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// partStatus is the part of an object in which phase and conditions are.
const partStatus = "status"

// errDeleting is said of an object on its way out: nobody needs to be told there,
// and what deletes it is not to be held up.
var errDeleting = errors.New("it is being deleted")

// ObjectStore keeps the annotations on an object of any kind, which it never
// creates, and phase and conditions where the kind has them. Of kinds that come
// with Kubernetes the status is left alone: a phase means something else there.
type ObjectStore struct {
	access cluster.ObjectAccess
	of     cluster.Reference

	mutex sync.Mutex
	// deleting tells that the object was on its way out when it was last seen.
	deleting bool
	// identity is its UID then.
	identity string
	// part tells whether the kind has a status; nil as long as nobody knows.
	part *bool
}

var (
	_ StatusStore = (*ObjectStore)(nil)
	_ identifier  = (*ObjectStore)(nil)
)

// NewObjectStore is a store on the object.
func NewObjectStore(access cluster.ObjectAccess, of cluster.Reference) *ObjectStore {
	return &ObjectStore{access: access, of: of}
}

// String names the object.
func (s *ObjectStore) String() string { return s.of.String() }

// Patch implements [Store].
func (s *ObjectStore) Patch(ctx context.Context, changes map[string]*string) error {
	// It may have been replaced by another one of that name since.
	if s.wasDeleting() {
		if _, err := s.object(ctx); err != nil {
			return err
		}
	}

	annotations := make(map[string]any, len(changes))

	for key, value := range changes {
		annotations[key] = nil

		if value != nil {
			annotations[key] = *value
		}
	}

	object, err := s.access.PatchObject(ctx, s.of, "", map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err == nil {
		s.see(object)
	}

	return err
}

// Read implements [Store]. An object that does not exist is an error that wraps
// ErrNotFound.
func (s *ObjectStore) Read(ctx context.Context) (map[string]string, error) {
	object, err := s.object(ctx)
	if err != nil {
		return nil, err
	}

	annotations := map[string]string{}

	found, _ := metadata(object)["annotations"].(map[string]any)
	for key, value := range found {
		if text, ok := value.(string); ok {
			annotations[key] = text
		}
	}

	return annotations, nil
}

// Status implements [StatusStore].
func (s *ObjectStore) Status(ctx context.Context) (status map[string]any, version string, err error) {
	if builtin(s.of.APIVersion) {
		return nil, "", fmt.Errorf("the status of a %s is its own: %w", s.of.Kind, cluster.ErrUnsupported)
	}

	has, err := s.hasStatus(ctx)
	if err != nil {
		return nil, "", err
	}

	if !has {
		return nil, "", fmt.Errorf("a %s has no status: %w", s.of.Kind, cluster.ErrUnsupported)
	}

	object, err := s.object(ctx)
	if err != nil {
		return nil, "", err
	}

	status, _ = object[partStatus].(map[string]any)
	version, _ = metadata(object)["resourceVersion"].(string)

	return status, version, nil
}

// PatchStatus implements [StatusStore].
func (s *ObjectStore) PatchStatus(ctx context.Context, version string, fields map[string]any) (map[string]any, error) {
	object, err := s.access.PatchObject(ctx, s.of, partStatus, map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		partStatus: fields,
	})
	if err != nil {
		return nil, err
	}

	s.see(object)

	status, _ := object[partStatus].(map[string]any)

	return status, nil
}

// object reads the object, unless it is on its way out.
func (s *ObjectStore) object(ctx context.Context) (map[string]any, error) {
	object, err := s.access.Object(ctx, s.of)
	if err != nil {
		return nil, err
	}

	s.see(object)

	if s.wasDeleting() {
		return nil, fmt.Errorf("%s cannot be written: %w", s.of, errDeleting)
	}

	return object, nil
}

// hasStatus asks once.
func (s *ObjectStore) hasStatus(ctx context.Context) (bool, error) {
	s.mutex.Lock()
	known := s.part
	s.mutex.Unlock()

	if known != nil {
		return *known, nil
	}

	has, err := s.access.HasPart(ctx, s.of, partStatus)
	if err != nil {
		return false, err
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()

	s.part = &has

	return has, nil
}

func (s *ObjectStore) see(object map[string]any) {
	since, _ := metadata(object)["deletionTimestamp"].(string)
	identity, _ := metadata(object)["uid"].(string)

	s.mutex.Lock()
	defer s.mutex.Unlock()

	s.deleting, s.identity = since != "", identity
}

// Identity is the UID of the object as it was last seen.
func (s *ObjectStore) Identity() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.identity
}

func (s *ObjectStore) wasDeleting() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.deleting
}

func metadata(object map[string]any) map[string]any {
	found, _ := object["metadata"].(map[string]any)

	return found
}

// builtin tells whether kinds of the API version come with Kubernetes: their groups
// have no dot, or are below k8s.io.
func builtin(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")

	return !grouped || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

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

// meaning gives an error of client-go that of one of the sentinels of package
// cluster. What completes "unable to ...", and mutates tells that the request
// changes something.
func meaning(what string, mutates bool, err error) error {
	var answer apierrors.APIStatus

	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return fmt.Errorf("unable to %s: %w: %w", what, sentinel(answer.Status(), mutates), err)
	case rejected(err.Error()):
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrCredentials, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("unable to %s: %w", what, err)
	default:
		return fmt.Errorf("unable to %s: %w: %w", what, lost(mutates), err)
	}
}

// sentinel is what the answer of the API server means.
func sentinel(status metav1.Status, mutates bool) error {
	switch status.Code {
	case http.StatusUnauthorized:
		return cluster.ErrCredentials
	case http.StatusForbidden:
		if strings.Contains(status.Message, "admission webhook") || strings.Contains(status.Message, "ValidatingAdmissionPolicy") {
			// They object to what was asked for, and not to who asked.
			return cluster.ErrRefused
		}

		return cluster.ErrDenied
	case http.StatusNotFound, http.StatusGone:
		return cluster.ErrNotFound
	case http.StatusConflict:
		return cluster.ErrConflict
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return cluster.ErrUnreachable
	}

	tooLarge := strings.Contains(status.Message, "request is too large") || strings.Contains(status.Message, "message larger than max")
	if status.Code >= http.StatusInternalServerError && !tooLarge {
		return lost(mutates)
	}

	return cluster.ErrRefused
}

// lost is the meaning of an answer that did not come.
func lost(mutates bool) error {
	if mutates {
		return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	}

	return cluster.ErrUnreachable
}

// rejected tells a refused certificate, or a login that failed, from a connection
// that broke.
func rejected(text string) bool {
	return strings.Contains(text, "x509: ") || strings.Contains(text, "tls: failed to verify") || strings.Contains(text, "getting credentials: ") ||
		strings.Contains(text, "remote error: tls: ") && !strings.Contains(text, "internal error")
}

// coreClient is a client of the objects of Kubernetes itself, over the connection
// of another client of the same API server.
func coreClient(config *rest.Config, httpClient *http.Client) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("unable to describe the objects of Kubernetes: %w", err)
	}

	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1

	client, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("unable to connect to the Kubernetes API: %w", err)
	}

	return client, nil
}

// Store is the object that carries the annotations.
type Store interface {
	// Patch sets the given annotations and removes those that are nil, in one
	// request. Others stay as they are. ErrRefused means that the object may not
	// look like that, as where the annotations become too large.
	Patch(ctx context.Context, changes map[string]*string) error
	// Read are the annotations of the object; empty where it does not exist and
	// Patch makes it.
	Read(ctx context.Context) (map[string]string, error)
	// String names the object for people.
	String() string
}

// identifier is a store that tells an object from another one of that name.
type identifier interface {
	// Identity is that of the object that was seen last; empty where there was none.
	Identity() string
}

// StatusStore is a store whose object may have a status as well.
type StatusStore interface {
	Store
	// Status is the status of the object, empty where there is none yet, and the
	// version of the object. ErrUnsupported means that the kind has none that is
	// ours to write.
	Status(ctx context.Context) (status map[string]any, version string, err error)
	// PatchStatus sets fields of the status of the object, as it was at the
	// version, and returns the status that stands then. ErrConflict means that
	// somebody else wrote the object since, ErrRefused that the kind has no such
	// field, or not with such a value.
	PatchStatus(ctx context.Context, version string, fields map[string]any) (map[string]any, error)
}
