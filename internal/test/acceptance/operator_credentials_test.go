// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// credentialsFrom returns the arguments of a provider that only has a management cluster.
func credentialsFrom(kubeconfig, name string) string {
	return manage(kubeconfig) + "\ncredentials_from = {\n namespace = " + quote(tenant) + "\n name = " + quote(name) + "\n}"
}

// TestAccCredentialsFromTheObject configures only where the object is.
func TestAccCredentialsFromTheObject(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)

	// The environment must not be used: it would be another cluster.
	w := newUnhurried(t, "TALOSCONFIG=/nowhere/talosconfig")
	w.write(credentialsFrom(o.ManagementKubeconfig(), owned), `talos_version = "1.13.4"`+o.publishTo())
	w.plan().mustSucceed(2).mustWarn("Rolling upgrade of 2 of 2 nodes")
	o.unchanged()

	w.apply().mustSucceed(0)
	o.wantUpgraded(talosTarget, once(1, 1))
	o.wantAnnotations(map[string]string{"talos-status": "completed", keyHold: ""})
	o.wantNoLeak(w)

	// The operator renews them, so every run has to read them again.
	secrets := o.core.CoreV1().Secrets(tenant)
	if err := secrets.Delete(t.Context(), keeping, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.plan().mustFail("credentials_from", "KubernetesCluster tenant-a/prod", "Secret")

	// If the Secret has no kubeconfig, one is requested from the Talos API.
	o.keepSecret(map[string][]byte{"talosconfig": o.file(o.Talosconfig())})
	w.mustPlan()
}

// keepSecret creates the operator's Secret with the data.
func (o *operated) keepSecret(data map[string][]byte) {
	o.t.Helper()

	err := o.objects.CreateSecret(o.t.Context(), cluster.Secret{Namespace: tenant, Name: keeping, Data: data},
		map[string]string{"cluster.vitistack.io/cluster-id": clusterID})
	if err != nil {
		o.t.Fatal(err)
	}
}

// wantNoLeak fails the test if a key of the cluster's administrators is in the state or beside it.
func (o *operated) wantNoLeak(w *workspace) {
	o.t.Helper()

	var secrets []string

	for _, file := range []string{o.Talosconfig(), o.Kubeconfig(), o.ManagementKubeconfig()} {
		var parsed any
		if err := yaml.Unmarshal(o.file(file), &parsed); err != nil {
			o.t.Fatal(err)
		}

		secrets = append(secrets, keysIn(parsed)...)
	}

	if len(secrets) < 3 {
		o.t.Fatalf("only %d keys are in the credentials", len(secrets))
	}

	state := string(o.file(filepath.Join(w.dir, "terraform.tfstate")))

	for _, secret := range secrets {
		if strings.Contains(state, secret) {
			o.t.Error("a key is in the state")
		}
	}
}

// keysIn returns the values of fields that have private keys.
func keysIn(value any) []string {
	var found []string

	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if text, is := field.(string); is && (name == "key" || name == "client-key-data") {
				found = append(found, text)
			} else {
				found = append(found, keysIn(field)...)
			}
		}
	case []any:
		for _, element := range value {
			found = append(found, keysIn(element)...)
		}
	}

	return found
}
