// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// catalogued is an answer of an API server to a read and to a write, and what
// each of them means.
type catalogued struct {
	answer http.HandlerFunc
	// unknown tells that the write may have happened.
	unknown bool
	says    string
}

// check fails the test unless both may heal, the write was sent once, and the
// texts say what was asked and what came back.
func (c catalogued) check(t *testing.T, name string) {
	t.Helper()

	api, requests := connect(t, c.answer)

	_, err := api.Nodes(t.Context())
	if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) || !cluster.Heals(err) || !strings.Contains(err.Error(), "nodes") || !strings.Contains(err.Error(), c.says) {
		t.Errorf("%s: read: %v, want only unreachable, and %q", name, err, c.says)
	}

	requests.Store(0)

	_, err = api.WriteJournal(t.Context(), cluster.Journal{ResourceVersion: "1"})
	if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) != c.unknown || !cluster.Heals(err) || !strings.Contains(err.Error(), "journal") {
		t.Errorf("%s: write: %v, want it unreachable, and outcome unknown: %t", name, err, c.unknown)
	}

	if count := requests.Load(); count != 1 {
		t.Errorf("%s: the write was sent %d times", name, count)
	}
}

// A database of etcd without space is an error of the API server, after which
// nobody knows whether it had written.
func TestCatalogue15DatabaseWithoutSpace(t *testing.T) {
	t.Parallel()

	catalogued{status(500, "InternalError", "etcdserver: mvcc: database space exceeded"), true, "database space exceeded"}.check(t, "no space")
}

// throttled is the answer of an API server that has too much to do for a second.
func throttled(writer http.ResponseWriter, _ *http.Request) {
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Retry-After", "1")
	writer.WriteHeader(http.StatusTooManyRequests)

	_ = json.NewEncoder(writer).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusTooManyRequests,
		Reason: metav1.StatusReasonTooManyRequests, Message: "too many requests, please try again later",
	})
}

// An API server that comes and goes is waited for; what it had not taken has no
// effect, and what it may have taken is looked for.
func TestCatalogue35APIServerFlaps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]catalogued{
		"shutting down":     {answer: status(503, "ServiceUnavailable", "apiserver is shutting down"), says: "shutting down"},
		"overloaded":        {answer: throttled, says: "too many requests"},
		"cut off":           {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unknown: true, says: "EOF"},
		"behind a proxy":    {answer: status(502, "BadGateway", "bad gateway"), unknown: true, says: "bad gateway"},
		"etcd without lead": {answer: status(500, "InternalError", "etcdserver: leader changed"), unknown: true, says: "leader changed"},
	} {
		test.check(t, name)
	}

	cp0, cp1 := newServer(t, nil), newServer(t, nil)
	f := &front{ways: map[string]string{own: cp0.address()}}
	api := f.client(t, cp0, "", "10.0.0.2:6443")

	if _, err := api.UID(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Gone, as it is while its static pod starts anew: then refused, then another
	// one answers, then it is back.
	cp0.CloseClientConnections()
	f.leads(own, "")

	if _, err := api.UID(t.Context()); !errors.Is(err, cluster.ErrUnreachable) || !cluster.Heals(err) {
		t.Errorf("refused: %v, want it unreachable", err)
	}

	f.leads("10.0.0.2:6443", cp1.address())

	if _, err := api.UID(t.Context()); err != nil {
		t.Errorf("through another API server: %v", err)
	}

	cp1.CloseClientConnections()
	f.leads(own, cp0.address())
	f.leads("10.0.0.2:6443", "")

	if _, err := api.UID(t.Context()); err != nil && !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("as it comes back: %v", err)
	}

	if _, err := api.UID(t.Context()); err != nil {
		t.Errorf("back: %v", err)
	}
}

// nodeOf is the Node object of a machine as an API server lists it.
func nodeOf(t *testing.T, status corev1.ConditionStatus, reason string, since time.Time, kubelet string) cluster.KubeNode {
	t.Helper()

	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0"}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: kubelet, BootID: "boot-1"}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since)}}

	api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		_ = json.NewEncoder(w).Encode(corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: []corev1.Node{node}})
	})

	nodes, err := api.Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}

	return nodes[0]
}

// Of a node that went away Kubernetes says after 40 s that it does not know.
func TestCatalogue18NodeOfWhichNothingIsKnown(t *testing.T) {
	t.Parallel()

	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	if node := nodeOf(t, corev1.ConditionUnknown, "NodeStatusUnknown", since, "v1.34.2"); node.Ready || node.ReadyReason != "NodeStatusUnknown" || !node.ReadySince.Equal(since) {
		t.Errorf("got %+v, want a node that is not ready since then", node)
	}
}

// A kubelet that is not ready leaves its version as it was.
func TestCatalogue37KubeletNotReady(t *testing.T) {
	t.Parallel()

	if node := nodeOf(t, corev1.ConditionFalse, "KubeletNotReady", time.Now(), "v1.34.2"); node.Ready || node.ReadyReason != "KubeletNotReady" || node.Kubelet.String() != "1.34.2" || node.BootID != "boot-1" {
		t.Errorf("got %+v, want a node that is not ready, with the old version", node)
	}
}

// A budget with nothing to give is told from an API server that has too much to
// do. Neither is asked again from here: the pause is the engine's.
func TestCatalogue38BudgetBlocksAnEviction(t *testing.T) {
	t.Parallel()

	pod := cluster.Pod{Namespace: "default", Name: "web", UID: "1"}

	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   error
		heals  bool
		says   string
	}{
		"exhausted": {
			status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", map[string]string{
				"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
			}), cluster.ErrBudget, true, "disruption budget web needs 2",
		},
		"throttled": {status(429, "TooManyRequests", "too many requests"), cluster.ErrUnreachable, true, "too many"},
		"two":       {status(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."), cluster.ErrRefused, false, "more than one"},
	} {
		api, requests := connect(t, test.answer)

		err := api.Evict(t.Context(), pod)
		if !errors.Is(err, test.want) || cluster.Heals(err) != test.heals || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("%s: %v, want %q, the pod and %q", name, err, test.want, test.says)
		}

		if count := requests.Load(); count != 1 {
			t.Errorf("%s: %d requests", name, count)
		}
	}
}
