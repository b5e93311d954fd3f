// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatIsNotRolledOutSaysWhatItLacks(t *testing.T) {
	r := newRig(t)
	r.renders(settings, proxy, resolver)

	unready := func(want ...string) {
		t.Helper()

		got, err := r.Unready(t.Context(), controlPlane)
		if err != nil {
			t.Fatal(err)
		}

		for i := range got {
			got[i] = strings.ReplaceAll(got[i], r.namespace, "NAMESPACE")
		}

		if !slices.Equal(got, want) {
			t.Errorf("unready: %q, want %q", got, want)
		}
	}

	unready("DaemonSet/NAMESPACE/proxy: it does not exist", "Deployment/NAMESPACE/resolver: it does not exist")

	if _, err := r.Apply(t.Context(), controlPlane, serverSide); err != nil {
		t.Fatal(err)
	}

	const unseen = "its controller has not seen the change yet"

	unready("DaemonSet/NAMESPACE/proxy: "+unseen, "Deployment/NAMESPACE/resolver: "+unseen)

	daemons, deployments := r.other.AppsV1().DaemonSets(r.namespace), r.other.AppsV1().Deployments(r.namespace)

	proxy, err := daemons.Get(t.Context(), "proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	resolver, err := deployments.Get(t.Context(), "resolver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	status, rolled := &proxy.Status, &resolver.Status

	for _, step := range []struct {
		change           func()
		proxy, resolvers string
	}{
		{func() {
			status.ObservedGeneration, status.DesiredNumberScheduled, status.UpdatedNumberScheduled = proxy.Generation, 3, 2
			rolled.ObservedGeneration = resolver.Generation
		}, "0 of 3 pods are updated", "0 of 2 pods are updated"},
		{func() {
			status.UpdatedNumberScheduled, status.CurrentNumberScheduled, status.NumberReady, status.NumberAvailable = 3, 3, 3, 3
			rolled.Replicas, rolled.UpdatedReplicas, rolled.ReadyReplicas = 3, 2, 3
		}, "", "1 pods from before are still there"},
		{func() { status.NumberAvailable = 2; rolled.Replicas, rolled.ReadyReplicas = 2, 1 }, "0 of 3 pods are updated", "1 of 2 pods are ready"},
		{func() { status.NumberAvailable = 3; rolled.ReadyReplicas = 2 }, "", ""},
	} {
		step.change()

		if proxy, err = daemons.UpdateStatus(t.Context(), proxy, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		if resolver, err = deployments.UpdateStatus(t.Context(), resolver, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		status, rolled = &proxy.Status, &resolver.Status

		var want []string

		if step.proxy != "" {
			want = append(want, "DaemonSet/NAMESPACE/proxy: "+step.proxy)
		}

		if step.resolvers != "" {
			want = append(want, "Deployment/NAMESPACE/resolver: "+step.resolvers)
		}

		unready(want...)
	}
}
