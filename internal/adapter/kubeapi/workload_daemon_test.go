// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestDaemonSetsThatMayNotBeListedAreReadOneByOne: a drain needs no more than
// that.
func TestDaemonSetsThatMayNotBeListedAreReadOneByOne(t *testing.T) {
	t.Parallel()

	const list, agent, gone = "/apis/apps/v1/daemonsets", "/apis/apps/v1/namespaces/default/daemonsets/agent", "/apis/apps/v1/namespaces/default/daemonsets/gone"

	of := func(name, owner string) corev1.Pod {
		yes := true

		return one(func(p *corev1.Pod) {
			p.Name, p.UID = name, types.UID("uid-"+name)
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: owner, UID: "1", Controller: &yes}}
		})
	}

	given := newSmall()
	given.daemons = []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1"}}}
	given.pods = []corev1.Pod{of("agent-1", "agent"), of("agent-2", "agent"), of("orphan", "gone")}
	given.denied = []string{list}

	found, asked, err := given.workloads(t)
	if err != nil || len(found.Pods) != 3 {
		t.Fatalf("%d pods, %v", len(found.Pods), err)
	}

	for i, want := range []struct {
		owner string
		stays bool
	}{{"DaemonSet/agent", true}, {"DaemonSet/agent", true}, {"", false}} {
		if got := found.Pods[i]; got.Owner != want.owner || got.Stays != want.stays {
			t.Errorf("%s: owner %q, stays %t; want %q, %t", got.Name, got.Owner, got.Stays, want.owner, want.stays)
		}
	}

	single := slices.DeleteFunc(asked, func(path string) bool { return !strings.Contains(path, "/daemonsets/") })
	slices.Sort(single)

	if !slices.Equal(single, []string{agent, gone}) {
		t.Errorf("asked for %v, want each DaemonSet once", single)
	}

	given.denied = []string{list, agent}

	if _, _, err := given.workloads(t); !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), agent) {
		t.Errorf("without a permission to read one: %v, want it denied", err)
	}
}
