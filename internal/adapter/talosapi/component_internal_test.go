// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

func TestComponent_ProxyImageIsThatOfTheDaemonSetOfKubeSystem(t *testing.T) {
	t.Parallel()

	object := func(kind, namespace, name, container string) map[string]any {
		return map[string]any{
			"kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
				map[string]any{"name": "first", "image": "other"},
				map[string]any{"name": container, "image": "proxy"},
			}}}},
		}
	}

	for name, test := range map[string]struct {
		object map[string]any
		want   string
	}{
		"kube-proxy":            {object("DaemonSet", "kube-system", "kube-proxy", "kube-proxy"), "proxy"},
		"another namespace":     {object("DaemonSet", "edge", "kube-proxy", "kube-proxy"), ""},
		"no namespace":          {object("DaemonSet", "", "kube-proxy", "kube-proxy"), ""},
		"another name":          {object("DaemonSet", "kube-system", "kube-proxy-edge", "kube-proxy"), ""},
		"another kind":          {object("Deployment", "kube-system", "kube-proxy", "kube-proxy"), ""},
		"without its container": {object("DaemonSet", "kube-system", "kube-proxy", "second"), ""},
		"nothing":               {map[string]any{}, ""},
	} {
		made, err := structpb.NewStruct(test.object)
		if err != nil {
			t.Fatal(err)
		}

		if got := proxyImage(made); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
