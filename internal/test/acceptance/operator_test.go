// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

const (
	// tenant is the namespace of the object of an operator, owned its name.
	tenant = "tenant-a"
	owned  = "prod"
	// clusterID is the operator's ID of the cluster, keeping the name of its Secret.
	clusterID     = "prod-4f7a"
	keepingPrefix = "talos-"
	keeping       = keepingPrefix + clusterID

	keyHold = "do-not-reconcile"
	// keyPrefix is the prefix of all annotations of the protocol.
	keyPrefix = "upgrade.vitistack.io/"
)

// unhurried is how many simulated seconds pass in a real second if requests have to reach a second API server within
// seconds of the simulation: the last annotations have 10 s, and take up to 250 ms of real time on a busy machine.
const unhurried = 20

// newUnhurried returns a workspace with that speed.
func newUnhurried(t *testing.T, env ...string) *workspace {
	t.Helper()

	return newWorkspace(t, append(env, fmt.Sprintf("%s=%d", serveVariable, unhurried))...)
}

// vitistack returns the object of an operator that follows the annotation protocol.
func vitistack() cluster.Reference {
	return cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: tenant, Name: owned}
}

// operated is a simulated cluster that an operator owns.
type operated struct {
	*simulated

	of cluster.Reference
	// objects and core reach the cluster with the object as a person does, even while others cannot reach it.
	objects operator.Objects
	core    client.Interface
}

// startOperated starts a cluster and, for the object and the Secret of an operator, a management cluster; with
// options.CustomResources they are in the cluster itself.
func startOperated(t *testing.T, options sim.Options) *operated {
	t.Helper()

	options.Management = !options.CustomResources
	if options.Speed == 0 {
		options.Speed = unhurried
	}

	s := start(t, options)

	config, err := s.Config()
	if options.Management {
		config, err = s.ManagementConfig()
	}

	if err != nil {
		t.Fatal(err)
	}

	o := &operated{simulated: s, of: vitistack()}
	o.reach(config)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
	if _, err := o.core.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	return o
}

// reach creates the clients of a person.
func (o *operated) reach(config *rest.Config) {
	o.t.Helper()

	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		o.t.Fatal(err)
	}

	o.t.Cleanup(transport.CloseIdleConnections)

	if o.core, err = client.NewForConfigAndClient(config, transport); err != nil {
		o.t.Fatal(err)
	}

	if o.objects, err = operator.NewLive(config); err != nil {
		o.t.Fatal(err)
	}
}

// keep creates the object and the Secret that an operator of Vitistack has for the current cluster.
func (o *operated) keep(annotations map[string]string) {
	o.t.Helper()

	of, err := operator.SeedVitistack(o.t.Context(), o.objects, o.World, operator.Seed{
		Namespace: tenant, Name: owned, ClusterID: clusterID, Prefix: keepingPrefix, WithV: true,
		Talosconfig: o.file(o.Talosconfig()), Kubeconfig: o.file(o.Kubeconfig()), Annotations: annotations,
	})
	if err != nil {
		o.t.Fatal(err)
	}

	o.of = of
}

// file returns the content of a file.
func (o *operated) file(path string) []byte {
	o.t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}

	return content
}

// provider returns the arguments of a provider that reaches the cluster and the management cluster.
func (o *operated) provider() string {
	return use(o.simulated) + manage(o.ManagementKubeconfig())
}

func manage(kubeconfig string) string {
	return "\nmanagement = {\n kubeconfig_path = " + quote(kubeconfig) + "\n}"
}

// publishTo returns the argument of the resource that names an object; the API version may be empty.
func publishTo(apiVersion, kind, namespace, name string) string {
	text := "\npublish_to = {\n kind = " + quote(kind) + "\n namespace = " + quote(namespace) + "\n name = " + quote(name) + "\n"
	if apiVersion != "" {
		text += " api_version = " + quote(apiVersion) + "\n"
	}

	return text + "}"
}

// publishTo returns the argument that names the object of the operator, without its API version.
func (o *operated) publishTo() string { return publishTo("", o.of.Kind, o.of.Namespace, o.of.Name) }

// both returns arguments with the versions of both halves.
func both(talos, kubernetes string) string {
	return "talos_version = " + quote(talos) + "\nkubernetes_version = " + quote(kubernetes)
}

// play runs an operator of Vitistack until stop is called or the test ends.
func (o *operated) play(habits operator.Habits) (stop func()) {
	o.t.Helper()

	stop = operator.PlayVitistack(o.t.Context(), o.players(habits))
	o.t.Cleanup(stop)

	return stop
}

func (o *operated) players(habits operator.Habits) operator.Options {
	o.t.Helper()

	config, err := o.Config()
	if err != nil {
		o.t.Fatal(err)
	}

	sync, err := operator.LiveSync(config, o.World)
	if err != nil {
		o.t.Fatal(err)
	}

	return operator.Options{World: o.World, Objects: o.objects, Namespace: o.of.Namespace, Name: o.of.Name, Sync: sync, Habits: habits}
}

// configMap creates an empty ConfigMap in the namespace of the object.
func (o *operated) configMap(name string) {
	o.t.Helper()

	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := o.core.CoreV1().ConfigMaps(tenant).Create(o.t.Context(), made, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}
