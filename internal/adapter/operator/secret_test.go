// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestCredentials_AreTakenFromTheSecretOfTheCluster(t *testing.T) {
	t.Parallel()

	both := map[string]string{"talosconfig": "talos!", "kube.config": "kube!"}

	for name, test := range map[string]struct {
		arrange            func(*store)
		source, kubeconfig string
	}{
		"by its label":                {func(s *store) { s.put(annotated(prod(), nil)); s.keep("tenant-a", "talos-prod-x1", marked(), both) }, "Secret tenant-a/talos-prod-x1", "kube!"},
		"by its name":                 {func(s *store) { s.put(annotated(prod(), nil)); s.keep("tenant-a", "prod-x1", nil, both) }, "Secret tenant-a/prod-x1", "kube!"},
		"without a kubeconfig yet":    {func(s *store) { s.keep("tenant-a", "prod", nil, map[string]string{"talosconfig": "talos!"}) }, "Secret tenant-a/prod", ""},
		"without a KubernetesCluster": {func(s *store) { s.keep("tenant-a", "prod", nil, both) }, "Secret tenant-a/prod", "kube!"},
		"where that may not be read": {func(s *store) {
			s.put(annotated(prod(), nil))
			s.keep("tenant-a", "prod", nil, both)
			s.before = once("get Kube", 1, func() error { return cluster.ErrDenied })
		}, "Secret tenant-a/prod", "kube!"},
	} {
		api := newStore(t)
		test.arrange(api)

		got, err := operator.ReadCredentials(t.Context(), api, "tenant-a", "prod")
		if err != nil || string(got.Talosconfig) != "talos!" || string(got.Kubeconfig) != test.kubeconfig || got.Source != test.source {
			t.Errorf("%s: %v, from %q", name, err, got.Source)
		}

		if len(api.changes()) != 0 {
			t.Errorf("%s: %q", name, api.changes())
		}
	}
}

func TestCredentials_ThatAreMissingAreExplained(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		arrange func(*store)
		want    error
		words   []string
	}{
		"neither": {func(*store) {}, cluster.ErrNotFound, []string{"neither KubernetesCluster tenant-a/prod nor Secret tenant-a/prod"}},
		"a cluster without its Secret": {
			func(s *store) {
				s.put(annotated(prod(), nil))
				s.keep("tenant-a", "prod", nil, map[string]string{"talosconfig": "x"})
			},
			cluster.ErrNotFound,
			[]string{"KubernetesCluster tenant-a/prod", "cluster-id=prod-x1"},
		},
		"nobody may look": {
			func(s *store) { s.before = once("get Kube", 1, func() error { return cluster.ErrDenied }) },
			cluster.ErrDenied,
			[]string{"there is no Secret tenant-a/prod"},
		},
		"the Secret may not be read": {
			func(s *store) { s.before = once("get Secret", 1, func() error { return cluster.ErrDenied }) }, cluster.ErrDenied, nil,
		},
		"nothing answers": {func(s *store) { s.before = once("get Kube", 1, func() error { return cluster.ErrUnreachable }) }, cluster.ErrUnreachable, nil},
		"a Secret without a talosconfig": {
			func(s *store) {
				s.keep("tenant-a", "prod", nil, map[string]string{"kube.config": "hidden", "talosconfig": ""})
			},
			cluster.ErrNotFound,
			[]string{"Secret tenant-a/prod", "key talosconfig"},
		},
	} {
		api := newStore(t)
		test.arrange(api)

		got, err := operator.ReadCredentials(t.Context(), api, "tenant-a", "prod")
		if !errors.Is(err, test.want) || got.Source != "" || got.Talosconfig != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		for _, words := range test.words {
			if !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: %q is missing in: %v", name, words, err)
			}
		}
	}
}
