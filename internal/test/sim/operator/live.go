// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// userAgent is the user agent of a player in the audit log of a real API server.
const userAgent = "operator-player"

// liveTimeout bounds one request.
const liveTimeout = 10 * time.Second

// Live is an API server as client-go reaches it.
type Live struct {
	objects dynamic.Interface
	core    typedcore.CoreV1Interface
}

var _ Objects = (*Live)(nil)

// NewLive connects to the API server of a configuration, under the player's name.
func NewLive(config *rest.Config) (*Live, error) {
	config = rest.CopyConfig(config)
	config.UserAgent, config.Timeout = userAgent, liveTimeout

	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the operator: %w", err)
	}

	core, err := typedcore.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the operator: %w", err)
	}

	return &Live{objects: objects, core: core}, nil
}

// resource returns the client for objects of a kind.
func (l *Live) resource(of cluster.Reference) (dynamic.ResourceInterface, error) {
	version, err := schema.ParseGroupVersion(of.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("apiVersion %q: %w", of.APIVersion, err)
	}

	plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(of.Kind))
	if of.Namespace == "" {
		return l.objects.Resource(plural), nil
	}

	return l.objects.Resource(plural).Namespace(of.Namespace), nil
}

// Get implements [Objects].
func (l *Live) Get(ctx context.Context, of cluster.Reference) (map[string]any, error) {
	place, err := l.resource(of)
	if err != nil {
		return nil, err
	}

	found, err := place.Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, named("read "+of.String(), err)
	}

	return found.Object, nil
}

// List implements [Objects].
func (l *Live) List(ctx context.Context, apiVersion, kind, namespace string) ([]map[string]any, error) {
	place, err := l.resource(cluster.Reference{APIVersion: apiVersion, Kind: kind, Namespace: namespace})
	if err != nil {
		return nil, err
	}

	found, err := place.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, named("list "+kind, err)
	}

	objects := make([]map[string]any, len(found.Items))
	for i := range found.Items {
		objects[i] = found.Items[i].Object
	}

	return objects, nil
}

// Patch implements [Objects].
func (l *Live) Patch(ctx context.Context, of cluster.Reference, part string, patch map[string]any) error {
	place, err := l.resource(of)
	if err != nil {
		return err
	}

	encoded, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch of %s: %w", of, err)
	}

	var parts []string
	if part != "" {
		parts = append(parts, part)
	}

	_, err = place.Patch(ctx, of.Name, types.MergePatchType, encoded, metav1.PatchOptions{}, parts...)

	return named("patch "+of.String(), err)
}

// Create implements [Objects].
func (l *Live) Create(ctx context.Context, object map[string]any) error {
	of := referenceOf(object)

	place, err := l.resource(of)
	if err != nil {
		return err
	}

	if _, err := place.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		return named("create "+of.String(), err)
	}

	status, has := object[partStatus]
	if !has {
		return nil
	}

	return l.Patch(ctx, of, partStatus, map[string]any{partStatus: status})
}

// SecretOf implements [Objects].
func (l *Live) SecretOf(ctx context.Context, namespace, label, value string) (cluster.Secret, error) {
	found, err := l.core.Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: label + "=" + value})
	if err != nil {
		return cluster.Secret{}, named("list Secrets", err)
	}

	if len(found.Items) == 0 {
		return cluster.Secret{}, fmt.Errorf("unable to find a Secret in %s with the label %s=%s: %w", namespace, label, value, cluster.ErrNotFound)
	}

	first := &found.Items[0]

	return cluster.Secret{Namespace: namespace, Name: first.Name, Data: first.Data, ResourceVersion: first.ResourceVersion}, nil
}

// WriteSecret implements [Objects].
func (l *Live) WriteSecret(ctx context.Context, namespace, name string, data map[string]string) error {
	written := make(map[string][]byte, len(data))
	for key, value := range data {
		written[key] = []byte(value)
	}

	encoded, err := json.Marshal(map[string]any{"data": written})
	if err != nil {
		return fmt.Errorf("encoding a patch of a Secret: %w", err)
	}

	_, err = l.core.Secrets(namespace).Patch(ctx, name, types.MergePatchType, encoded, metav1.PatchOptions{})

	return named("write Secret "+namespace+"/"+name, err)
}

// CreateSecret implements [Objects].
func (l *Live) CreateSecret(ctx context.Context, secret cluster.Secret, labels map[string]string) error {
	_, err := l.core.Secrets(secret.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: maps.Clone(labels)},
		Type:       corev1.SecretTypeOpaque, Data: secret.Data,
	}, metav1.CreateOptions{})

	return named("create Secret "+secret.Namespace+"/"+secret.Name, err)
}

// CreateNamespace creates a namespace; one that exists is no error.
func (l *Live) CreateNamespace(ctx context.Context, name string) error {
	_, err := l.core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}

	return named("create Namespace "+name, err)
}

// named gives an error of the API server its meaning.
func named(what string, err error) error {
	var answer apierrors.APIStatus

	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrNotFound, err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrConflict, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrDenied, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrRefused, err)
	case errors.As(err, &answer):
		return fmt.Errorf("unable to %s: %w", what, err)
	default:
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrUnreachable, err)
	}
}

// LiveSync returns a function that brings what a control plane renders into the upgraded cluster, whose API server
// the configuration is for: see [Options.Sync].
func LiveSync(config *rest.Config, world *model.World) (func(ctx context.Context, controlPlane string) error, error) {
	live, err := NewLive(config)
	if err != nil {
		return nil, err
	}

	return func(ctx context.Context, controlPlane string) error {
		state, err := world.Node(controlPlane)
		if err != nil {
			return err
		}

		for _, manifest := range bootstrap.Render(state) {
			for _, object := range manifest.Objects {
				if err := live.ensure(ctx, object); err != nil {
					return fmt.Errorf("manifest %s: %w", manifest.ID, err)
				}
			}
		}

		return nil
	}, nil
}

// ensure patches an object to what is wanted, or creates it.
func (l *Live) ensure(ctx context.Context, object map[string]any) error {
	err := l.Patch(ctx, referenceOf(object), "", object)
	if errors.Is(err, cluster.ErrNotFound) {
		return l.Create(ctx, object)
	}

	return err
}
