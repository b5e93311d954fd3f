// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machineryclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/protobuf/types/known/durationpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unheldKubernetes is a release that nothing runs and that has no images: a request for it gets no further than a
// plan or a refusal.
const unheldKubernetes = "1.36.6"

// talosconfigOf returns the path of a talosconfig with a role, which a machine signs.
func (w *world) talosconfigOf(ctx context.Context, t *testing.T, role string) string {
	t.Helper()

	config, err := clientconfig.Open(w.talosconfig)
	if err != nil {
		t.Fatal(err)
	}

	api, err := machineryclient.New(ctx, machineryclient.WithConfig(config))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = api.Close() })

	ctx, cancel := context.WithTimeout(machineryclient.WithNode(ctx, w.machines[0].address.String()), callPatience)
	defer cancel()

	signed, err := api.GenerateClientConfiguration(ctx, &machineapi.GenerateClientConfigurationRequest{
		Roles: []string{"os:" + role}, CrtTtl: durationpb.New(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}

	access := config.Contexts[config.Context]
	access.Crt = base64.StdEncoding.EncodeToString(signed.GetMessages()[0].GetCrt())
	access.Key = base64.StdEncoding.EncodeToString(signed.GetMessages()[0].GetKey())

	path := w.state("talosconfig-" + role)
	if err := config.Save(path); err != nil {
		t.Fatal(err)
	}

	return path
}

// permission is what a role may do, with or without a kubeconfig beside its talosconfig.
type permission struct {
	role string
	// given is true if the provider block has the administrator's kubeconfig.
	given bool
	// refusal has the texts of the only error of an apply that would upgrade; nil for an administrator.
	refusal []string
	// looks is true if the role can observe the running versions, so that an apply with nothing to upgrade succeeds.
	looks bool
}

var permissions = []permission{
	{"operator", true, []string{"carry os:operator; an upgrade needs os:admin", "Nothing was touched."}, true},
	{"operator", false, []string{"no kubeconfig was configured", "os:operator", "os:admin", "Nothing was touched."}, false},
	{"reader", true, []string{"carry os:reader; an upgrade needs os:admin", "Nothing was touched."}, true},
	{"reader", false, []string{"no kubeconfig was configured", "os:reader", "os:admin", "Nothing was touched."}, false},
	{"admin", true, nil, true},
	{"admin", false, nil, true},
}

// holdsToRoles plans and applies with every role. Every role may plan. A role that may not upgrade has to get one
// error of the apply, before anything is touched. If there is nothing to upgrade, a role that can observe that may
// apply.
func (w *world) holdsToRoles(ctx context.Context, t *testing.T) {
	running := w.kubernetesThatRuns(t)

	for _, one := range permissions {
		title, kubeconfig := one.role+" without a kubeconfig", ""
		if one.given {
			title, kubeconfig = one.role+" with a kubeconfig", "  kubeconfig_path = "+quote(w.kubeconfig())+"\n"
		}

		t.Run(title, func(t *testing.T) {
			f := w.terraform(t, "")
			provider := "  talosconfig_path = " + quote(w.talosconfigOf(ctx, t, one.role)) + "\n" + kubeconfig

			if one.refusal != nil {
				f.write(t, provider, kubernetesAt(unheldKubernetes))
				f.plan(ctx, t).must(somethingToDo)
				w.mustBeRefusedUntouched(ctx, t, f, one.refusal...)
			}

			f.write(t, provider, kubernetesAt(running))
			f.plan(ctx, t).must(somethingToDo)

			if !one.looks {
				w.mustBeRefusedUntouched(ctx, t, f, one.refusal...)

				return
			}

			f.apply(ctx, t).must(nothingToDo)
			f.plan(ctx, t).must(nothingToDo)
		})
	}
}

// mustBeRefusedUntouched fails the test unless an apply has one error with the texts, and touches nothing.
func (w *world) mustBeRefusedUntouched(ctx context.Context, t *testing.T, f terraform, says ...string) {
	t.Helper()

	before := w.touched(ctx, t)
	refusal := f.apply(ctx, t).must(failed)

	// The CLI wraps long lines.
	said := flat(refusal.output)

	_, errors, found := strings.Cut(said, "Error: ")
	if !found || strings.Contains(errors, "Error: ") {
		t.Errorf("want one error:\n%s", refusal.output)
	}

	for _, text := range says {
		if !strings.Contains(errors, text) {
			t.Errorf("the error does not say %q:\n%s", text, refusal.output)
		}
	}

	if after := w.touched(ctx, t); after != before {
		t.Errorf("before it was\n%s\nand then\n%s", before, after)
	}
}

// kubernetesAt returns the configuration of a cluster with a release of Kubernetes.
func kubernetesAt(release string) string {
	return fmt.Sprintf("resource \"talosupgrade_cluster\" \"this\" {\n  kubernetes_version = %q\n}\n", release)
}

// kubernetesThatRuns returns the release of the API server.
func (w *world) kubernetesThatRuns(t *testing.T) string {
	t.Helper()

	said, err := w.client(t).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimPrefix(said.GitVersion, "v")
}

// touched returns everything that an upgrade writes first: cordons, configurations of the machines and its own
// records.
func (w *world) touched(ctx context.Context, t *testing.T) string {
	t.Helper()

	var found []string

	client := w.client(t)

	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, node := range nodes.Items {
		found = append(found, fmt.Sprintf("%s is cordoned: %t", node.Name, node.Spec.Unschedulable))
	}

	for _, m := range w.machines {
		said, err := w.talosctl(ctx, "--nodes", m.address.String(), "get", "machineconfig", "v1alpha1", "--output", "jsonpath={.metadata.version}")
		if err != nil {
			t.Fatal(err)
		}

		found = append(found, fmt.Sprintf("%s has version %s of its configuration", m.name, strings.TrimSpace(said)))
	}

	for _, name := range []string{"talosupgrade", "talosupgrade-journal"} {
		object, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}

		found = append(found, fmt.Sprintf("%s has version %s", name, object.ResourceVersion))
	}

	lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "talosupgrade", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}

	return strings.Join(append(found, "the lease has version "+lease.ResourceVersion), "\n")
}
