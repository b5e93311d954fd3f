// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// eventTimeout bounds one request.
const eventTimeout = 10 * time.Second

// EventSink writes Kubernetes Events to one API server.
type EventSink struct {
	client rest.Interface
}

// NewEventSink uses the connection of another client of the same API server, and
// ends with it.
func NewEventSink(config *rest.Config, httpClient *http.Client) (*EventSink, error) {
	client, err := coreClient(config, httpClient)
	if err != nil {
		return nil, err
	}

	return &EventSink{client: client}, nil
}

func (s *EventSink) create(ctx context.Context, event *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()

	var written corev1.Event

	err := s.client.Post().Namespace(event.Namespace).Resource("events").Body(event).MaxRetries(0).Do(ctx).Into(&written)

	return &written, err
}

func (s *EventSink) patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()

	var written corev1.Event

	err := s.client.Patch(types.StrategicMergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).
		Body(patch).MaxRetries(0).Do(ctx).Into(&written)

	return &written, err
}
