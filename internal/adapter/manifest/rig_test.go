// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/manifest"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	controlPlane  = "10.5.0.2"
	inventoryName = "talos-bootstrap-manifests-inventory"
)

var serverSide = cluster.ManifestOptions{ServerSide: true}

// rig is a client whose control plane renders what a test says, and a namespace
// of its own for the objects.
type rig struct {
	*manifest.Client

	t         *testing.T
	kube      *kubeapi.Client
	other     kubernetes.Interface
	namespace string
	states    *states
	wire      *wire
}

// newRig returns a rig on the shared cluster, which has no inventory then.
func newRig(t *testing.T) *rig {
	t.Helper()

	r := connect(t, suite)

	made, err := r.other.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sync-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	r.namespace = made.Name
	r.forgetInventory()

	return r
}

// connect makes a rig whose control plane does not render anything yet.
func connect(t *testing.T, simulator *sim.Simulator) *rig {
	t.Helper()

	kubeconfig, err := os.ReadFile(simulator.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	kube, err := kubeapi.New(kubeconfig, "", kubeapi.Options{UserAgent: "terraform-provider-talosupgrade/test"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(kube.Close)

	other, err := kubernetes.NewForConfigAndClient(kube.Config(), kube.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}

	r := &rig{t: t, kube: kube, other: other, states: &states{}, wire: &wire{next: kube.HTTPClient().Transport}}
	r.Client = manifest.New(r.states, kube.Config(), &http.Client{Transport: r.wire})

	return r
}

// forgetInventory turns the cluster, which began with Talos 1.12, into one that has never been synced.
func (r *rig) forgetInventory() {
	r.t.Helper()

	err := r.other.CoreV1().ConfigMaps("kube-system").Delete(r.t.Context(), inventoryName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.t.Fatal(err)
	}
}

// inventory returns the keys of the inventory; nil if there is none.
func (r *rig) inventory() []string {
	r.t.Helper()

	stored, err := r.other.CoreV1().ConfigMaps("kube-system").Get(r.t.Context(), inventoryName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		r.t.Fatal(err)
	}

	keys := []string{}
	for key := range stored.Data {
		keys = append(keys, key)
	}

	slices.Sort(keys)

	return keys
}

// renders makes the control plane render the documents from now on. NAMESPACE stands for the namespace of the rig.
func (r *rig) renders(documents ...string) {
	r.t.Helper()
	r.states.set(r.rendering(documents...))
}

// rendering returns the state of a control plane that renders the documents.
func (r *rig) rendering(documents ...string) state.State {
	r.t.Helper()

	store := state.WrapCore(namespaced.NewState(inmem.Build))

	for i, document := range documents {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(document, "NAMESPACE", r.namespace)), &object); err != nil {
			r.t.Fatal(err)
		}

		rendered := k8s.NewManifest(k8s.ControlPlaneNamespaceName, fmt.Sprintf("%02d-test", i))
		rendered.TypedSpec().Items = []k8s.SingleManifest{{Object: object}}

		if err := store.Create(r.t.Context(), rendered); err != nil {
			r.t.Fatal(err)
		}
	}

	return store
}

func (r *rig) configMap(name string) *corev1.ConfigMap {
	r.t.Helper()

	found, err := r.other.CoreV1().ConfigMaps(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}

	return found
}

// create puts the ConfigMap into the namespace of the rig.
func (r *rig) create(object *corev1.ConfigMap) {
	r.t.Helper()

	if _, err := r.other.CoreV1().ConfigMaps(r.namespace).Create(r.t.Context(), object, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// summary returns a short form of each change.
func (r *rig) summary(changes []cluster.ManifestChange) []string {
	short := []string{}
	for _, change := range changes {
		short = append(short, string(change.Action)+" "+strings.ReplaceAll(change.Object, r.namespace, "NAMESPACE"))
	}

	return short
}

// expect compares what a call changed, or would change.
func (r *rig) expect(what string, changes []cluster.ManifestChange, err error, want ...string) {
	r.t.Helper()

	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}

	if got := r.summary(changes); !slices.Equal(got, want) {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// states serves one state for the control plane, and those of others.
type states struct {
	mu     sync.Mutex
	core   state.State
	others map[string]state.State
}

func (s *states) set(core state.State) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.core = core
}

func (s *states) State(address string) state.State {
	s.mu.Lock()
	defer s.mu.Unlock()

	if address == controlPlane {
		return s.core
	}

	if other := s.others[address]; other != nil {
		return other
	}

	return state.WrapCore(namespaced.NewState(inmem.Build))
}

// wire counts the requests that write, and fails those that a test picks.
type wire struct {
	next http.RoundTripper

	mu     sync.Mutex
	writes []string
	fails  func(request *http.Request) error
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	w.mu.Lock()

	if writes(request) {
		w.writes = append(w.writes, request.Method+" "+request.URL.Path)
	}

	var err error
	if w.fails != nil {
		err = w.fails(request)
	}

	w.mu.Unlock()

	if err != nil {
		return nil, err
	}

	return w.next.RoundTrip(request)
}

func (w *wire) breaks(fails func(request *http.Request) error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.fails = fails
}

// taken returns the writes since the last call.
func (w *wire) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	taken := w.writes
	w.writes = nil

	return taken
}

func writes(request *http.Request) bool {
	return request.Method != http.MethodGet && request.URL.Query().Get("dryRun") != "All"
}

// suite is one simulated cluster with a real API server, which the tests share:
// starting it takes seconds. Talos 1.12 leaves the inventory to a sync.
var suite *sim.Simulator

func TestMain(m *testing.M) {
	flag.Parse()

	code, err := run(m)
	if err == nil && code == 0 {
		err = goleak.Find()
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "manifest")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)

	// If Kubernetes has not been built yet, that takes minutes.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	suite, err = start(ctx, "1.12.6", dir)
	if err != nil {
		return 1, err
	}

	code = m.Run()

	return code, suite.Stop()
}

func start(ctx context.Context, talos, dir string) (*sim.Simulator, error) {
	return sim.Start(ctx, sim.Options{
		ControlPlanes: 1, Talos: talos, Kubernetes: "1.34.2", Seed: 1, Dir: dir, Progress: os.Stderr, InMemory: !toolchain.RealKubernetes(),
	})
}
