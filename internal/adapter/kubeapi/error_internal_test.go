// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"errors"
	"net/url"
	"testing"
)

// The path and the query would leave no room for the reason.
func TestError_SaysTheReasonAndTheServer(t *testing.T) {
	const asked = "https://10.5.0.2:6443/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app+in+%28kube-apiserver%29"

	for reason, want := range map[string]string{
		"dial tcp 10.5.0.2:6443: connect: connection refused": "dial tcp 10.5.0.2:6443: connect: connection refused",
		"unexpected EOF": "10.5.0.2:6443: unexpected EOF",
	} {
		failed := &url.Error{Op: "Get", URL: asked, Err: errors.New(reason)}
		if got := explain(t.Context(), operation{what: "list the pods"}, false, failed).Error(); got != "unable to list the pods: unreachable: "+want {
			t.Errorf("got %q, want it to end with %q", got, want)
		}
	}

	if got := detailOf(errors.New("no URL")); got != "no URL" {
		t.Errorf("got %q", got)
	}
}

func TestError_PathsOfOneKind(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/nodes":                              "api/v1/nodes",
		"/api/v1/nodes/worker-0":                     "api/v1/nodes/*",
		"/api/v1/namespaces/web/pods/web-1/eviction": "api/v1/pods/*/eviction",
		"/api/v1/pods":                               "api/v1/pods",
		"/api/v1/namespaces/kube-system":             "api/v1/namespaces/*",
		"/api/v1/namespaces/kube-system/configmaps/talosupgrade-journal":     "api/v1/kube-system/configmaps/*",
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x":       "apis/coordination.k8s.io/v1/kube-system/leases/*",
		"/apis/apps/v1/namespaces/longhorn-system/deployments/engine/status": "apis/apps/v1/longhorn-system/deployments/*/status",
		"/apis/apps/v1": "/apis/apps/v1",
		"/readyz":       "/readyz",
		"/":             "/",
		"/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes":   "apis/longhorn.io/v1beta2/longhorn-system/volumes",
		"/apis/policy/v1/poddisruptionbudgets":                           "apis/policy/v1/poddisruptionbudgets",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns": "apis/rbac.authorization.k8s.io/v1/clusterroles/*",
	} {
		if got := kindOf(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
