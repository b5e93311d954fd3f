// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// grant gives the user of the guide the rules of the guide, changed by edit, and
// returns a kubeconfig of that user for the management cluster.
func (o *operated) grant(edit func(*rbacv1.Role)) string {
	o.t.Helper()

	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(o.file(filepath.Join("..", "..", "..", "examples", "guides", "beside-an-operator", "rbac.yaml"))), 1<<12)

	var (
		role    rbacv1.Role
		binding rbacv1.RoleBinding
	)

	for _, into := range []any{&role, &binding} {
		if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
			o.t.Fatal(err)
		}
	}

	edit(&role)

	access := o.core.RbacV1()
	if _, err := access.Roles(tenant).Create(o.t.Context(), &role, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}

	if _, err := access.RoleBindings(tenant).Create(o.t.Context(), &binding, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}

	config, err := clientcmd.LoadFromFile(o.ManagementKubeconfig())
	if err != nil {
		o.t.Fatal(err)
	}

	for _, user := range config.AuthInfos {
		user.Impersonate = binding.Subjects[0].Name
	}

	path := filepath.Join(o.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		o.t.Fatal(err)
	}

	return path
}

// TestAccDirectBesideAnOperator upgrades both halves beside an operator that is running, with only the permissions
// that the guide requires.
func TestAccDirectBesideAnOperator(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	o.keep(nil)
	o.play(operator.Habits{Undoes: true})

	w := newUnhurried(t)
	provider := use(o.simulated) + manage(o.grant(func(*rbacv1.Role) {}))

	w.write(provider, both(talosModern, kubernetes)+o.publishTo())
	w.apply().mustSucceed(0).mustNotWarn(o.of.String())
	o.wantAnnotations(map[string]string{
		"talos-current": talosModern, "talos-status": "idle", "kubernetes-current": kubernetes, "kubernetes-status": "idle", keyHold: "",
	})

	if available, message := o.annotation("talos-available"), o.annotation("talos-message"); available == "" || message != "Upgrade available: "+talosModern+" → "+available {
		t.Errorf("available is %q, and the message %q", available, message)
	}

	o.untouched("cp-0", "worker-0", "worker-1")
	w.plan().mustSucceed(0)

	w.write(provider, both(talosTarget, kubernetesTarget)+o.publishTo())
	w.plan().mustSucceed(2).mustNotWarn("publish_to")
	w.apply().mustSucceed(0).mustNotWarn(o.of.String())

	o.wantUpgraded(talosTarget, once(1, 2))
	o.wantKubernetes(kubernetesTarget)
	o.wantDone(talosTarget, kubernetesTarget, map[string]string{
		"talos-message":       "Talos upgrade completed: now running " + talosTarget,
		"kubernetes-message":  "Kubernetes upgrade completed: now running " + kubernetesTarget,
		"kubernetes-progress": "3/3", "talos-progress": "3/3",
	})
	o.wantPhase("Ready", map[string]string{"TalosUpgrade": "False Completed", "KubernetesUpgrade": "False Completed", "Valid": "True Valid"})
	o.wantSecret(map[string]string{"talos_version": "v" + talosTarget, "kubernetes_version": "v" + kubernetesTarget, "upgrade_in_progress": "false"})
	o.wantHeld()
	o.wantIdleOperator()
	o.wantEvents()

	// The operator has been running all the time: once it is released it reacts, and it reverts nothing.
	o.forget()
	o.annotate(map[string]string{"kubernetes-target": "1.99.0"})
	o.awaitAnnotation("kubernetes-status", func(value string) bool { return value == "failed" || value == "blocked" })
	o.annotate(map[string]string{"kubernetes-target": ""})
	o.wantUpgraded(talosTarget, once(1, 2))
	o.wantKubernetes(kubernetesTarget)
}

// wantEvents fails the test unless the steps of an upgrade of both halves are in the Events of the object and of the
// nodes.
func (o *operated) wantEvents() {
	o.t.Helper()

	object := reasons(o.t, o.core, tenant, o.of.Kind)[owned]
	for _, reason := range []string{"UpgradeStarted", "UpgradeCompleted"} {
		if object[reason] == 0 {
			o.t.Errorf("no Event %s is about %s, but %v", reason, o.of, object)
		}
	}

	nodes := reasons(o.t, o.someone(), metav1.NamespaceDefault, "Node")
	for _, node := range o.World.Nodes() {
		if nodes[node.Name]["NodeUpgraded"] == 0 {
			o.t.Errorf("no Event says that %s was upgraded, but %v", node.Name, nodes[node.Name])
		}
	}
}

// TestAccDirectIsRefused: the operator is upgrading, or about to. A plan has to say so, and an apply must touch
// nothing.
func TestAccDirectIsRefused(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)

	w := newUnhurried(t)
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo())

	for _, test := range []struct {
		stands map[string]string
		says   []string
	}{
		{map[string]string{"talos-target": "v1.13.2"}, []string{"1.13.2", "talos-target-"}},
		{map[string]string{"talos-status": "in-progress", "talos-message": "Upgrading node cp-0 (1/2)"}, []string{"in-progress", "Upgrading node cp-0 (1/2)"}},
	} {
		o.annotate(test.stands)

		planned := w.plan().mustSucceed(2)
		for _, text := range append(test.says, o.of.String()) {
			planned.mustWarn(text)
		}

		w.apply().mustFail(append(test.says, o.of.String())...)
		o.wantAnnotations(test.stands)

		for key := range test.stands {
			o.annotate(map[string]string{key: ""})
		}
	}

	o.untouched("cp-0", "worker-0")

	for _, key := range []string{keyHold, "talos-status", "talos-message", "talos-current"} {
		if values := o.written(key, true); len(values) > 0 {
			t.Errorf("we wrote %s: %v", key, values)
		}
	}
}

// TestAccDirectThatFails: the object has to say what failed and where, and the operator has to be released. Then the
// fault ends, and the next apply has to succeed.
func TestAccDirectThatFails(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	o.keep(nil)
	o.play(operator.Habits{})
	o.faults(`faults: [{node: worker-1, step: install, effect: fail, times: 0}]`)

	w := newUnhurried(t)
	w.write(o.provider(), "talos_version = \"1.13.4\"\nnode_timeout = \"12m\""+o.publishTo())
	w.apply().mustFail(faulty, "install")

	o.wantAnnotations(map[string]string{
		"talos-status": "failed", "talos-progress": "1/3", "failed-nodes": faulty, "talos-current": talosModern, "talos-target": "", keyHold: "",
	})

	if message := o.annotation("talos-message"); !strings.HasPrefix(message, "Talos upgrade failed: ") || !strings.Contains(message, faulty) {
		t.Errorf("the message is %q", message)
	}

	o.wantPhase("UpgradeFailed", map[string]string{"TalosUpgrade": "False Failed", "Valid": "True Valid"})
	o.wantHeld()
	// This is the lowest version that runs.
	o.wantSecret(map[string]string{"talos_version": "v" + talosModern})

	o.faults("")
	o.settle()
	w.apply().mustSucceed(0)
	o.wantUpgraded(talosTarget, nil)
	o.wantAnnotations(map[string]string{
		"talos-status": "completed", "talos-progress": "3/3", "failed-nodes": "", "talos-current": talosTarget, keyHold: "",
	})
	o.wantPhase("Ready", map[string]string{"TalosUpgrade": "False Completed"})
	o.wantSecret(map[string]string{"talos_version": "v" + talosTarget})
	o.wantHeld()
	o.wantIdleOperator()
}

// TestAccPublishTo changes the object from one to another, and to none.
func TestAccPublishTo(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newUnhurried(t)

	// An object without a status.
	o.configMap("progress")

	o.of = cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: tenant, Name: "progress"}
	w.write(o.provider(), `talos_version = "1.13.3"`+o.publishTo())
	w.apply().mustSucceed(0).mustNotWarn(o.of.String())
	o.wantAnnotations(map[string]string{"talos-current": "1.13.3", "talos-status": "completed", keyHold: ""})

	if held := o.written(keyHold, true); len(held) > 0 {
		t.Errorf("an object on which nothing acts was held: %v", held)
	}

	// With another object, no node has to be upgraded, but the object has to be written.
	o.keep(nil)
	w.write(o.provider(), `talos_version = "1.13.3"`+o.publishTo())
	w.mustPlan("update").mustNotWarn("Rolling upgrade")
	w.apply().mustSucceed(0).mustNotWarn(o.of.String())
	o.wantAnnotations(map[string]string{"talos-current": "1.13.3", "talos-status": "idle", "kubernetes-current": kubernetes, keyHold: ""})
	o.times(once(1, 1))
	w.mustPlan()

	changed := len(o.changes())
	w.apply().mustSucceed(0)

	if later := o.changes()[changed:]; len(later) > 0 {
		t.Errorf("an apply without anything to do changed %v", later)
	}

	// Back to the ConfigMap in the upgraded cluster, and then no object.
	w.write(o.provider(), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)
	o.wantAnnotations(map[string]string{"talos-current": "1.13.3"})
	w.destroy().mustSucceed(0)
	o.wantAnnotations(map[string]string{"talos-current": "1.13.3", "talos-status": "idle"})
}
