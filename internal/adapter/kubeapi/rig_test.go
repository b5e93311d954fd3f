// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// suite is one simulated cluster with a real API server, which the tests that
// need one share: starting it takes seconds. They leave it as they found it.
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
	if !toolchain.RealKubernetes() {
		return m.Run(), nil
	}

	dir, err := os.MkdirTemp("", "kubeapi")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)

	// If Kubernetes has not been built yet, that takes minutes.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	suite, err = sim.Start(ctx, sim.Options{
		ControlPlanes: 3, Workers: 2, Talos: "1.13.2", Kubernetes: "1.35.2", Pods: 6, Seed: 1, Dir: dir, Progress: os.Stderr,
	})
	if err != nil {
		return 1, err
	}

	code = m.Run()

	return code, suite.Stop()
}

// live returns a client of the real API server, and one of client-go to set things up and look at them.
func live(t *testing.T) (*kubeapi.Client, kubernetes.Interface) {
	t.Helper()

	return liveWith(t, func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
}

// liveWith is live with a sleep function of its own.
func liveWith(t *testing.T, sleep func(context.Context, time.Duration) error) (*kubeapi.Client, kubernetes.Interface) {
	t.Helper()

	if suite == nil {
		toolchain.NeedKubernetes(t)
	}

	kubeconfig, err := os.ReadFile(suite.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	client, err := kubeapi.New(kubeconfig, "", kubeapi.Options{UserAgent: "terraform-provider-talosupgrade/test", Sleep: sleep})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	other, err := kubernetes.NewForConfigAndClient(client.Config(), client.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}

	return client, other
}

// eventually waits for something that the simulated cluster does by itself.
func eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()

	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()

	var err error

	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-ticker.C {
		var held bool
		if held, err = holds(); err == nil && held {
			return
		}
	}

	t.Fatal(errors.Join(fmt.Errorf("waited in vain for %s", what), err))
}

// server is an API server with one namespace, over HTTP/2 as the real one.
type server struct {
	*httptest.Server

	requests atomic.Int32
}

func (s *server) address() string { return s.Listener.Addr().String() }

func newServer(t *testing.T, certificate func(*httptest.Server)) *server {
	t.Helper()

	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		s.requests.Add(1)

		if request.ProtoMajor != 2 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)

			return
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u"}}`)
	}))
	s.EnableHTTP2 = true

	if certificate != nil {
		certificate(s.Server)
	}

	s.StartTLS()
	t.Cleanup(s.Close)

	return s
}

// front is where connections really go: addresses that a test invents, each of which leads to a server or is down.
type front struct {
	mu    sync.Mutex
	ways  map[string]string
	dials []string
	conns []*frozenConn
}

// frozenConn is a connection that can be silenced.
type frozenConn struct {
	net.Conn

	frozen atomic.Bool
}

func (c *frozenConn) Read(buffer []byte) (int, error) {
	for {
		count, err := c.Conn.Read(buffer)
		if err != nil || !c.frozen.Load() {
			return count, err
		}
	}
}

func (c *frozenConn) Write(data []byte) (int, error) {
	if c.frozen.Load() {
		return len(data), nil
	}

	return c.Conn.Write(data)
}

// freeze silences every connection that is open.
func (f *front) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, conn := range f.conns {
		conn.frozen.Store(true)
	}
}

func (f *front) leads(address, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.ways[address] = to
}

// taken returns the addresses that were dialled since the last call.
func (f *front) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	taken := f.dials
	f.dials = nil

	return taken
}

func (f *front) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dials = append(f.dials, address)
	to := f.ways[address]
	f.mu.Unlock()

	switch to {
	case "":
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case "nowhere":
		<-ctx.Done()

		return nil, ctx.Err()
	}

	raw, err := (&net.Dialer{}).DialContext(ctx, network, to)
	if err != nil {
		return nil, err
	}

	conn := &frozenConn{Conn: raw}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.conns = append(f.conns, conn)

	return conn, nil
}

// own is the server of the kubeconfig. The certificate of test servers is for
// this name.
const own = "example.com:6443"

func (f *front) client(t *testing.T, issuer *server, extra string, alternatives ...string) *kubeapi.Client {
	t.Helper()

	if !strings.Contains(extra, "insecure") {
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw})
		extra += ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(authority)
	}

	kubeconfig := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q%s}}]\ncontexts: [{name: a, context: {cluster: c}}]\n", "https://"+own, extra)

	client, err := kubeapi.New([]byte(kubeconfig), "", kubeapi.Options{
		DialContext: f.dial, Alternatives: func() []string { return alternatives },
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	return client
}

// foreignCertificate gives a server a certificate for the same name by another
// authority.
func foreignCertificate(t *testing.T) func(*httptest.Server) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}

	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	return func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	}
}

// small is a cluster of three nodes, to which tests add what they need.
type small struct {
	pods     []corev1.Pod
	nodes    []corev1.Node
	budgets  []policyv1.PodDisruptionBudget
	daemons  []appsv1.DaemonSet
	replicas []appsv1.ReplicaSet
	stateful []appsv1.StatefulSet
	jobs     []batchv1.Job
	// denied are the paths that may not be listed.
	denied []string
}

func newSmall() *small {
	given := &small{}

	for _, name := range []string{"a", "b", "c"} {
		given.nodes = append(given.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}})
	}

	return given
}

// workloads reads the cluster, and returns which lists were requested.
func (s *small) workloads(t *testing.T) (cluster.Workloads, []string, error) {
	t.Helper()

	lists := map[string]any{
		"/api/v1/nodes":                        corev1.NodeList{TypeMeta: typed("v1", "NodeList"), Items: s.nodes},
		"/api/v1/pods":                         corev1.PodList{TypeMeta: typed("v1", "PodList"), Items: s.pods},
		"/apis/policy/v1/poddisruptionbudgets": policyv1.PodDisruptionBudgetList{TypeMeta: typed("policy/v1", "PodDisruptionBudgetList"), Items: s.budgets},
		"/apis/apps/v1/daemonsets":             appsv1.DaemonSetList{TypeMeta: typed("apps/v1", "DaemonSetList"), Items: s.daemons},
		"/apis/apps/v1/replicasets":            appsv1.ReplicaSetList{TypeMeta: typed("apps/v1", "ReplicaSetList"), Items: s.replicas},
		"/apis/apps/v1/statefulsets":           appsv1.StatefulSetList{TypeMeta: typed("apps/v1", "StatefulSetList"), Items: s.stateful},
		"/apis/batch/v1/jobs":                  batchv1.JobList{TypeMeta: typed("batch/v1", "JobList"), Items: s.jobs},
		"/api/v1/replicationcontrollers":       corev1.ReplicationControllerList{TypeMeta: typed("v1", "ReplicationControllerList")},
	}

	// A canceled request may still be under way when the answer arrives.
	var (
		mu    sync.Mutex
		paths []string
	)

	api, _ := connect(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()

		if slices.Contains(s.denied, r.URL.Path) {
			status(http.StatusForbidden, "Forbidden", "no "+r.URL.Path)(w, r)

			return
		}

		if namespace, name, single := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/apps/v1/namespaces/"), "/daemonsets/"); single {
			s.daemon(namespace, name)(w, r)

			return
		}

		w.Header().Set("Content-Type", "application/json")

		_ = json.NewEncoder(w).Encode(lists[r.URL.Path])
	})

	found, err := api.Workloads(t.Context())

	mu.Lock()
	defer mu.Unlock()

	return found, slices.Clone(paths), err
}

// daemon answers for one DaemonSet.
func (s *small) daemon(namespace, name string) http.HandlerFunc {
	for _, one := range s.daemons {
		if one.Namespace == namespace && one.Name == name {
			one.TypeMeta = typed("apps/v1", "DaemonSet")

			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")

				_ = json.NewEncoder(w).Encode(one)
			}
		}
	}

	return status(http.StatusNotFound, "NotFound", "no "+name)
}

func typed(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// one returns a pod on node a.
func one(change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-web", Labels: map[string]string{"app": "web"}}}
	pod.Spec.NodeName = "a"
	pod.Status.Phase = corev1.PodRunning

	for _, one := range change {
		one(&pod)
	}

	return pod
}
