// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unheldKubernetes is a release that nothing runs and that no image is served of: what is
// asked for it goes no further than a plan, or a refusal.
const unheldKubernetes = "1.36.6"

// talosconfigOf is the path of a talosconfig with a role, which the machines themselves sign.
func (w *world) talosconfigOf(ctx context.Context, t *testing.T, role string) string {
	t.Helper()

	if role == "admin" {
		return w.talosconfig
	}

	path := w.state("talosconfig-" + role)

	if _, err := w.talosctl(ctx, "--nodes", w.machines[0].address.String(), "config", "new", path, "--roles", "os:"+role); err != nil {
		t.Fatal(err)
	}

	return path
}

// holdsToRoles plans and applies with every role, with and without a kubeconfig. Whoever
// may read plans, with a kubeconfig where discovery is off, because nothing else says then
// which nodes there are. Nobody but an administrator changes anything.
func (w *world) holdsToRoles(ctx context.Context, t *testing.T) {
	client := w.client(t)

	before, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "talosupgrade", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, role := range []string{"admin", "operator", "reader"} {
		path := w.talosconfigOf(ctx, t, role)

		for title, kubeconfig := range map[string]string{"with": "  kubeconfig_path = " + quote(w.kubeconfig()) + "\n", "without": ""} {
			t.Run(role+" "+title+" a kubeconfig", func(t *testing.T) {
				f := w.terraform(t, "")
				provider := "  talosconfig_path = " + quote(path) + "\n" + kubeconfig

				f.write(t, provider, fmt.Sprintf("resource \"talosupgrade_cluster\" \"this\" {\n  kubernetes_version = %q\n}\n", unheldKubernetes))

				if role != "admin" && kubeconfig == "" {
					f.plan(ctx, t).must(failed, "no kubeconfig was configured", "permission")

					return
				}

				f.plan(ctx, t).must(somethingToDo, unheldKubernetes)

				if role != "admin" {
					f.apply(ctx, t).must(failed, "os:"+role, "os:admin")
				}

				// What runs is what it asks for, so that nothing would be changed.
				f.write(t, provider, fmt.Sprintf("resource \"talosupgrade_cluster\" \"this\" {\n  kubernetes_version = %q\n}\n",
					kubernetesVersions[len(kubernetesVersions)-1]))
				f.plan(ctx, t).must(somethingToDo)

				if role == "admin" {
					f.apply(ctx, t).must(nothingToDo)
					f.plan(ctx, t).must(nothingToDo)
				}
			})
		}
	}

	w.mustRun(ctx, t, kubernetesVersions[len(kubernetesVersions)-1])
	w.mustHaveNoJournal(ctx, t)

	after, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "talosupgrade", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for key, was := range before.Annotations {
		if now := after.Annotations[key]; now != was && !strings.HasSuffix(key, "last-update") && !strings.HasSuffix(key, "-message") {
			t.Errorf("the annotation %s was %q and is %q", key, was, now)
		}
	}
}
