// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"testing"
)

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
