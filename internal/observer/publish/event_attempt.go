// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
)

const (
	// reporter is who reports the Events.
	reporter = "talosupgrade"
	// faultsMost is how often an Event is sent with which the API server has an
	// error of its own.
	faultsMost = 3
)

// eventAttempt is one Event that is being written.
type eventAttempt struct {
	*eventWriter

	said saying
	// event is nil before it is known what it is about; patch is how it differs from
	// the one that is there, if it is.
	event *corev1.Event
	patch []byte
	// sent tells that it was sent before, and may be there.
	sent   bool
	faults int
}

func (w *eventWriter) begin(said saying) *eventAttempt {
	return &eventAttempt{eventWriter: w, said: said}
}

// again makes an attempt, and tells whether another one could do better.
func (a *eventAttempt) again(ctx context.Context) bool {
	if a.noCreate != nil {
		return false
	}

	if a.event == nil {
		involved, err := a.about.reference(ctx, a.said)
		if err != nil {
			a.away = err

			return true
		}

		if !a.correlate(involved) {
			return false
		}
	}

	written, err := a.send(ctx)
	if err != nil {
		return a.judge(err)
	}

	if written != nil {
		a.correlator().UpdateState(written)
	}

	return false
}

// correlate makes the Event; false where there are enough of them.
func (a *eventAttempt) correlate(involved corev1.ObjectReference) bool {
	at := metav1.NewTime(a.said.at)
	if at.IsZero() {
		at = metav1.NewTime(a.clock.Now())
	}

	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: a.about.namespace(), Name: a.name(involved)},
		InvolvedObject: involved, Reason: a.said.reason, Message: a.said.message, Type: corev1.EventTypeNormal,
		FirstTimestamp: at, LastTimestamp: at, Count: 1, Source: corev1.EventSource{Component: reporter},
	}

	if a.said.warning {
		event.Type = corev1.EventTypeWarning
	}

	result, err := a.correlator().EventCorrelate(event)
	if err != nil {
		a.refused++
		a.refusal = err

		return false
	}

	if result.Skip {
		return false
	}

	a.event, a.patch = result.Event, result.Patch
	// What tells alike Events apart does not know it.
	a.event.ReportingController = reporter

	return true
}

// name is one that no other Event has.
func (a *eventAttempt) name(involved corev1.ObjectReference) string {
	return util.GenerateEventName(involved.Name, a.clock.Now().UnixNano())
}

func (a *eventAttempt) correlator() *record.EventCorrelator {
	if a.said.rank == rankWait {
		return a.waits
	}

	return a.steps
}

// send counts the Event that is there already, or makes it. What is written is nil
// where it need not, or may not, be.
func (a *eventAttempt) send(ctx context.Context) (written *corev1.Event, err error) {
	if a.event.Count > 1 {
		if a.uncounted() {
			return nil, nil
		}

		written, err = a.sink.patch(ctx, a.event, a.patch)

		switch {
		case forbids(err):
			a.noPatch, err = err, nil

			return nil, err
		case !apierrors.IsNotFound(err):
			return written, err
		}
	}

	// There was none, or the API server has forgotten it, as it does after an hour.
	a.event.ResourceVersion = ""

	written, err = a.sink.create(ctx, a.event)

	switch {
	case apierrors.IsAlreadyExists(err) && a.sent:
		written, err = nil, nil
	case apierrors.IsAlreadyExists(err):
		a.event.Name = a.name(a.event.InvolvedObject)
	}

	a.sent = true

	return written, err
}

// judge takes note of what failed, and tells whether another attempt could do
// better.
func (a *eventAttempt) judge(err error) bool {
	var answer apierrors.APIStatus

	if !errors.As(err, &answer) || apierrors.IsAlreadyExists(err) {
		a.away = err

		return true
	}

	switch code := answer.Status().Code; {
	case forbids(err), code == http.StatusUnauthorized:
		a.noCreate = err

		return false
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		a.away = err

		return true
	case code >= http.StatusInternalServerError:
		if a.faults++; a.faults < faultsMost {
			a.away = err

			return true
		}
	}

	a.refused++
	a.refusal = err

	return false
}

// forbids tells a missing permission from an objection to one Event.
func forbids(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
		!strings.Contains(err.Error(), "admission webhook") && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}
