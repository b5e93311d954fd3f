// SPDX-License-Identifier: MPL-2.0

package real

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepsQuorum upgrades Talos on the last of three control planes, whose members of etcd vote with it, and then
// Kubernetes on all of them. Talos refuses an upgrade in a container, so the other two are on hold in the first half.
func (w *world) keepsQuorum(ctx context.Context, t *testing.T) {
	m := w.machines[2]
	before := w.boot(ctx, t)

	w.mustVote(ctx, t)

	f := w.terraform(t, request{talos: nextTalos, held: w.machines[:2], arguments: "  node_timeout = \"1h\"\n"}.resource())
	f.plan(ctx, t).must(somethingToDo, nextTalos)

	apply := f.begin(ctx, t)
	apply.during(w, m.name+" has installed", func() bool { return m.printed(t, installed) > 0 })
	apply.kill()

	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	w.mustHaveUpgraded(ctx, t, m, nextTalos, 1, before[m.name])
	w.mustHaveNoJournal(ctx, t)
	w.mustVote(ctx, t)

	f.write(t, "  talosconfig_path = "+quote(w.talosconfig)+"\n", kubernetesAt(kubernetesVersions[1].String()))
	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	w.mustHaveGoneOneByOne(ctx, t)
	w.mustHaveNoJournal(ctx, t)
	w.mustVote(ctx, t)
}

// mustVote fails the test unless every machine has a member of etcd that votes, and all of them agree on that.
func (w *world) mustVote(ctx context.Context, t *testing.T) {
	t.Helper()

	for _, m := range w.machines {
		w.until(ctx, t, "etcd on "+m.name+" has all members", w.patience(), func(ctx context.Context) error {
			said, err := w.talosctl(ctx, "--nodes", m.address.String(), "etcd", "members")
			if err != nil {
				return err
			}

			for _, other := range w.machines {
				if !strings.Contains(said, other.name) {
					return fmt.Errorf("%s is missing in\n%s", other.name, said)
				}
			}

			if strings.Contains(said, "true") {
				return fmt.Errorf("there is a learner:\n%s", said)
			}

			return nil
		})
	}
}

// mustHaveGoneOneByOne fails the test unless each API server runs the new release, and was started after the one
// before it was Ready.
func (w *world) mustHaveGoneOneByOne(ctx context.Context, t *testing.T) {
	t.Helper()

	pods, err := w.client(t).CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}

	if len(pods.Items) != len(w.machines) {
		t.Fatalf("there are %d API servers, want %d", len(pods.Items), len(w.machines))
	}

	started := func(pod *corev1.Pod) time.Time {
		if statuses := pod.Status.ContainerStatuses; len(statuses) == 1 && statuses[0].State.Running != nil {
			return statuses[0].State.Running.StartedAt.Time
		}

		t.Fatalf("%s does not run: %+v", pod.Name, pod.Status)

		return time.Time{}
	}

	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return cmp.Compare(started(&a).Unix(), started(&b).Unix()) })

	var ready time.Time

	for index := range pods.Items {
		pod := &pods.Items[index]

		if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v"+kubernetesVersions[1].String()) {
			t.Errorf("%s runs %s, want %s", pod.Name, image, kubernetesVersions[1])
		}

		if began := started(pod); began.Before(ready) {
			t.Errorf("%s was started at %s, and the one before was Ready at %s", pod.Name, began, ready)
		}

		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				ready = condition.LastTransitionTime.Time
			}
		}
	}
}
