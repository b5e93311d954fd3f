// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

// selfSigned is a client certificate that nobody trusts: these tests reach
// nothing.
func selfSigned(t *testing.T) *ClientCertificate {
	t.Helper()

	return signedUntil(t, time.Now().Add(time.Hour))
}

func signedUntil(t *testing.T, expires time.Time) *ClientCertificate {
	t.Helper()

	return signedFor(t, expires, "os:admin")
}

func signedFor(t *testing.T, expires time.Time, roles ...string) *ClientCertificate {
	t.Helper()

	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: roles},
		NotBefore: expires.Add(-24 * time.Hour), NotAfter: expires,
	}

	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}

	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	encoded := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}

	return &ClientCertificate{CA: encoded("CERTIFICATE", certificate), Cert: encoded("CERTIFICATE", certificate), Key: encoded("PRIVATE KEY", key)}
}

func testSettings() *Settings {
	return &Settings{Version: "test", Clock: engine.RealClock()}
}

// TestConnection_HasWhatKubernetesTakes: without the Kubernetes API there is
// nothing to look for removals in, and nothing to apply manifests to.
func TestConnection_HasWhatKubernetesTakes(t *testing.T) {
	access := Credentials{
		Endpoints: []string{"127.0.0.1:1"}, Certificate: selfSigned(t),
		Kubeconfig: "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://vip.example.com:7443'}}]\n" +
			"users: [{name: a, user: {token: t}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n",
	}
	shared := testSettings()

	var servers serverAddresses

	reached, err := Dial(t.Context(), shared, access, "", KubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	if reached.Removals == nil || reached.Manifests == nil || reached.Store == nil || reached.Workloads == nil || reached.Objects == nil {
		t.Errorf("removals %v, manifests %v, workloads %v, objects %v", reached.Removals, reached.Manifests, reached.Workloads, reached.Objects)
	}

	if got, want := servers.addresses(), []string{"127.0.0.1:6443", "127.0.0.1:7443"}; !slices.Equal(got, want) {
		t.Errorf("other API servers %q, want %q", got, want)
	}

	if err := reached.Close(); err != nil {
		t.Error(err)
	}

	access.Kubeconfig = ""

	reached, err = Dial(t.Context(), shared, access, "", KubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	if reached.Removals != nil || reached.Manifests != nil || reached.Store != nil || reached.Workloads != nil || reached.Objects != nil || reached.Kubernetes == nil {
		t.Errorf("removals %v, manifests %v, workloads %v, objects %v although there is no Kubernetes API", reached.Removals, reached.Manifests, reached.Workloads, reached.Objects)
	}

	if err := reached.Close(); err != nil {
		t.Error(err)
	}
}

// TestConnection_ClusterIsCalledByItsContext: snapshots of etcd are named after it.
func TestConnection_ClusterIsCalledByItsContext(t *testing.T) {
	reaching := NewClusters(testSettings(), Credentials{})

	for want, reached := range map[string]*Connection{
		"north":                             {Name: `talosconfig context "north"`, context: "north"},
		"client configuration for 10.5.0.2": {Name: "client configuration for 10.5.0.2"},
	} {
		if got := reaching.EngineOptions(reached, nil).ClusterName; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestConnection_RefusesARoleThatReadsNothing: with os:etcd:backup every node would
// seem to be silent.
func TestConnection_RefusesARoleThatReadsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		roles []string
		want  string
	}{
		"a backup": {[]string{"os:etcd:backup"}, "Unusable credentials: the certificate of the client configuration for 127.0.0.1:1 has the role os:etcd:backup, " +
			"with which a cluster can be neither looked at nor upgraded; a plan needs os:reader, and an upgrade os:admin.\n\n" +
			"Correct them and run the command again; nothing was changed."},
		"a backup that reads":             {[]string{"os:etcd:backup", "os:reader"}, ""},
		"an operator":                     {[]string{"os:operator"}, ""},
		"no role, for the nodes to judge": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			access := Credentials{
				Endpoints: []string{"127.0.0.1:1"}, Certificate: signedFor(t, time.Now().Add(time.Hour), test.roles...),
				Kubeconfig: "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://vip.example.com:7443'}}]\n" +
					"users: [{name: a, user: {token: t}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n",
			}

			reached, err := Dial(t.Context(), testSettings(), access, "", KubeconfigCache{servers: &serverAddresses{}})
			if err != nil {
				if got := Problem("plan the upgrade", access, err); got.Summary() != "Unusable credentials" || got.Detail() != test.want {
					t.Errorf("%s: %s\nwant %s", got.Summary(), got.Detail(), test.want)
				}

				return
			}

			if test.want != "" {
				t.Error("it is let in")
			}

			if err := reached.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConnection_OtherAPIServersAreOnTheControlPlanes(t *testing.T) {
	seen := cluster.Observation{Nodes: []cluster.Node{
		{Name: "worker-0", Role: cluster.Worker, Address: "10.5.0.9"},
		{Name: "cp-0", Role: cluster.ControlPlane, Address: "10.5.0.2"},
		{Name: "cp-1", Role: cluster.ControlPlane, Address: "fd00::3"},
		{Name: "cp-2", Role: cluster.ControlPlane},
	}}

	for name, test := range map[string]struct {
		tell func(*serverAddresses)
		want []string
	}{
		"nothing is known": {func(*serverAddresses) {}, nil},
		"endpoints of Talos": {func(b *serverAddresses) {
			b.expect("cp.example.com", "10.5.0.2:50000", "fd00::3", "[fd00::4]:50000", "https://talos.example.com:443", "[fd00::5]")
			b.at("https://vip.example.com:6443")
		}, []string{"cp.example.com:6443", "10.5.0.2:6443", "[fd00::3]:6443", "[fd00::4]:6443", "talos.example.com:6443", "[fd00::5]:6443"}},
		"behind a load balancer": {func(b *serverAddresses) {
			b.expect("10.5.0.2", "10.5.0.3")
			b.at("https://vip.example.com")
		}, []string{"10.5.0.2:6443", "10.5.0.3:6443", "10.5.0.2:443", "10.5.0.3:443"}},
		"observed": {func(b *serverAddresses) {
			b.expect("vip.example.com")
			b.at("https://vip.example.com:6443")
			b.notice(seen)
			b.expect("vip.example.com")
		}, []string{"10.5.0.2:6443", "[fd00::3]:6443"}},
		"behind a tunnel": {func(b *serverAddresses) {
			b.at("https://127.0.0.1:7443")
			b.notice(seen)
		}, nil},
		"an observation of nothing": {func(b *serverAddresses) {
			b.expect("vip.example.com")
			b.notice(cluster.Observation{})
		}, []string{"vip.example.com:6443"}},
	} {
		t.Run(name, func(t *testing.T) {
			var book serverAddresses

			test.tell(&book)

			if got := book.addresses(); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// kubeconfigUntil is a kubeconfig whose client certificate expires then.
func kubeconfigUntil(t *testing.T, expires time.Time) string {
	t.Helper()

	signed := signedUntil(t, expires)

	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:7443'}}]\n"+
		"users: [{name: a, user: {client-certificate-data: %s, client-key-data: %s}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", signed.Cert, signed.Key)
}

func TestConnection_KubeconfigIsRememberedWhileItLasts(t *testing.T) {
	t.Parallel()

	const fresh = "fresh"

	// Certificates know seconds only.
	now := time.Now().Truncate(time.Second)
	lasting := kubeconfigUntil(t, now.Add(certificateReserve+time.Second))
	short := kubeconfigUntil(t, now.Add(certificateReserve))
	expired := kubeconfigUntil(t, now)
	withToken := "apiVersion: v1\nkind: Config\nusers: [{name: a, user: {token: t}}]\n"
	down := errors.New("down")

	for name, test := range map[string]struct {
		remembered string
		down       error
		want       string
		asks       int
	}{
		"none":                         {"", nil, fresh, 1},
		"none, and none to be had":     {"", down, "", 1},
		"lasting":                      {lasting, down, lasting, 0},
		"soon to expire":               {short, nil, fresh, 1},
		"soon to expire, nothing else": {short, down, short, 1},
		"expired":                      {expired, nil, fresh, 1},
		"expired, nothing else":        {expired, down, "", 1},
		"without a certificate":        {withToken, down, withToken, 0},
	} {
		var (
			remembered KubeconfigCache
			asked      int
		)

		if test.remembered != "" {
			remembered.kubeconfig = []byte(test.remembered)
		}

		got, err := remembered.kubeconfigAt(t.Context(), now, func(context.Context) ([]byte, error) {
			asked++

			if test.down != nil {
				return nil, test.down
			}

			return []byte(fresh), nil
		})

		if string(got) != test.want || asked != test.asks || (err != nil) != (test.want == "") {
			t.Errorf("%s: asked %d times, %v, got %q", name, asked, err, got)
		}
	}
}

// TestConnection_KubeconfigOfTheUserIsLeftAlone: only what the Talos API gave can be asked for
// again.
func TestConnection_KubeconfigOfTheUserIsLeftAlone(t *testing.T) {
	given := kubeconfigUntil(t, time.Now().Add(-time.Minute))
	access := Credentials{Endpoints: []string{"127.0.0.1:1"}, Certificate: selfSigned(t), Kubeconfig: given}

	reached, err := Dial(t.Context(), testSettings(), access, "", KubeconfigCache{servers: &serverAddresses{}})
	if err != nil {
		t.Fatal(err)
	}

	if string(reached.kubeconfig) != given || reached.Removals == nil {
		t.Error("it is not used")
	}

	if err := reached.Close(); err != nil {
		t.Error(err)
	}

	// The same one, remembered, would be asked for, in vain.
	access.Kubeconfig = ""

	reached, err = Dial(t.Context(), testSettings(), access, "", KubeconfigCache{kubeconfig: []byte(given), servers: &serverAddresses{}})
	if err != nil {
		t.Fatal(err)
	}

	if reached.Removals != nil {
		t.Error("one that expired is used again")
	}

	if err := reached.Close(); err != nil {
		t.Error(err)
	}
}

// runsAProgram is a user of a kubeconfig.
const runsAProgram = "exec: {apiVersion: client.authentication.k8s.io/v1, command: id, interactiveMode: Never}"

// TestConnection_OnlyAKubeconfigOfTheUserRunsPrograms: with one from the Talos API, a control plane that somebody has taken
// would reach the machine that Terraform runs on.
func TestConnection_OnlyAKubeconfigOfTheUserRunsPrograms(t *testing.T) {
	runs := strings.Replace(kubeconfigOf("https://127.0.0.1:1"), "token: "+managementToken, runsAProgram, 1)
	access := Credentials{Endpoints: []string{"127.0.0.1:1"}, Certificate: selfSigned(t)}
	returned := KubeconfigCache{kubeconfig: []byte(runs), servers: &serverAddresses{}}

	_, err := Dial(t.Context(), testSettings(), access, "", returned)
	if !errors.Is(err, ErrCredentialsUnusable) || !strings.Contains(err.Error(), "the kubeconfig that the Talos API returned: ") {
		t.Errorf("one that the Talos API returned: %v", err)
	}

	access.Kubeconfig = runs

	reached, err := Dial(t.Context(), testSettings(), access, "", KubeconfigCache{servers: &serverAddresses{}})
	if err != nil {
		t.Fatalf("one of the user: %v", err)
	}

	if err := reached.Close(); err != nil {
		t.Error(err)
	}
}

// managementAPI is as much of the API of a management cluster as credentials_from
// asks for: a KubernetesCluster tenant-a/prod with a Secret beside it.
type managementAPI struct {
	*httptest.Server

	// data is in the Secret; nil is a Secret that is not there.
	data map[string]string
	// status is the answer about Secrets instead; 0 is none.
	status int
}

const managementToken = "dG9rZW4tb2YtdGhlLW1hbmFnZW1lbnQtY2x1c3Rlcg"

func newManagementAPI(t *testing.T, data map[string]string) *managementAPI {
	t.Helper()

	api := &managementAPI{data: data}
	api.Server = httptest.NewServer(http.HandlerFunc(api.answer))
	t.Cleanup(api.Close)

	return api
}

func (a *managementAPI) answer(w http.ResponseWriter, r *http.Request) {
	const (
		root    = "/apis/vitistack.io/v1alpha1"
		secrets = "/api/v1/namespaces/tenant-a/secrets"
	)

	switch path := r.URL.Path; {
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed)
	case path == root:
		write(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "vitistack.io/v1alpha1", "resources": []any{
			map[string]any{"name": "kubernetesclusters", "kind": "KubernetesCluster", "namespaced": true, "verbs": []string{"get"}},
		}})
	case path == root+"/namespaces/tenant-a/kubernetesclusters/prod":
		write(w, map[string]any{
			"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster", "metadata": map[string]any{"namespace": "tenant-a", "name": "prod"},
			"spec": map[string]any{"data": map[string]any{"clusterId": "c-1"}},
		})
	case strings.HasPrefix(path, secrets) && a.status != 0:
		refuse(w, a.status)
	case path == secrets && a.data != nil:
		write(w, map[string]any{"kind": "SecretList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{a.secret()}})
	case path == secrets:
		write(w, map[string]any{"kind": "SecretList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
	default:
		refuse(w, http.StatusNotFound)
	}
}

func (a *managementAPI) secret() map[string]any {
	encoded := map[string]string{}
	for key, value := range a.data {
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}

	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": encoded,
		"metadata": map[string]any{"namespace": "tenant-a", "name": "c-1", "resourceVersion": "1", "labels": map[string]string{"cluster.vitistack.io/cluster-id": "c-1"}},
	}
}

func write(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")

	_ = json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)

	reason := map[int]string{http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized"}[status]
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason})
}

func kubeconfigOf(server string) string {
	return "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: '" + server + "'}}]\n" +
		"users: [{name: a, user: {token: " + managementToken + "}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n"
}

func talosconfigOf(certificate *ClientCertificate) string {
	return fmt.Sprintf("context: admin@prod\ncontexts:\n  admin@prod:\n    endpoints: [127.0.0.1:1]\n    ca: %s\n    crt: %s\n    key: %s\n",
		certificate.CA, certificate.Cert, certificate.Key)
}

func lentBy(kubeconfig string) Credentials {
	return Credentials{Management: &ManagementAccess{Kubeconfig: kubeconfig}, From: &CredentialsSource{Namespace: "tenant-a", Name: "prod"}}
}

// TestCredentials_ComeFromTheManagementCluster: TALOSCONFIG names another cluster,
// and is not looked at.
func TestCredentials_ComeFromTheManagementCluster(t *testing.T) {
	t.Setenv(talosconfigEnv, "does/not/exist")

	api := newManagementAPI(t, map[string]string{"talosconfig": talosconfigOf(selfSigned(t)), "kube.config": kubeconfigOf("https://127.0.0.1:1")})

	var servers serverAddresses

	reached, err := Dial(t.Context(), testSettings(), lentBy(kubeconfigOf(api.URL)), "", KubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	if reached.context != "admin@prod" || reached.Own == nil || reached.Management == nil || string(reached.kubeconfig) != kubeconfigOf("https://127.0.0.1:1") {
		t.Errorf("reached %s, own %v, management %v", reached.Name, reached.Own, reached.Management)
	}

	if err := reached.Close(); err != nil {
		t.Error(err)
	}

	if _, err := Dial(t.Context(), testSettings(), lentBy(kubeconfigOf(api.URL)), "another", KubeconfigCache{servers: &servers}); !errors.Is(err, ErrCredentialsUnusable) ||
		!strings.Contains(err.Error(), `Secret tenant-a/c-1`) || !strings.Contains(err.Error(), `"another"`) {
		t.Errorf("another context: %v", err)
	}
}

// TestCredentials_ThatCannotBeLentNameAttributeAndObject: the message says which attribute and which
// object it is about, and holds nothing of what is secret.
func TestCredentials_ThatCannotBeLentNameAttributeAndObject(t *testing.T) {
	t.Setenv(talosconfigEnv, "")

	usable := talosconfigOf(selfSigned(t))
	malformed := filepath.Join(t.TempDir(), "kubeconfig")

	if err := os.WriteFile(malformed, []byte("clusters: [unclosed "+managementToken), 0o600); err != nil {
		t.Fatal(err)
	}

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()

	for name, test := range map[string]struct {
		data       map[string]string
		status     int
		management *ManagementAccess
		from       *CredentialsSource
		is         error
		says       []string
		// curable is true if a plan goes on.
		curable bool
	}{
		"no object": {
			data: map[string]string{"talosconfig": usable}, from: &CredentialsSource{"tenant-a", "staging"}, is: cluster.ErrNotFound,
			says: []string{"credentials_from = tenant-a/staging", "Correct credentials_from and management"},
		},
		"no Secret": {is: cluster.ErrNotFound, says: []string{"credentials_from = tenant-a/prod", "The Secret beside it is there once"}},
		"no key": {
			data: map[string]string{"kube.config": secret, "talos_version": "1.12.0"}, is: errLent,
			says: []string{"credentials_from = tenant-a/prod", "Secret tenant-a/c-1", "talosconfig"},
		},
		"no permission":       {status: http.StatusForbidden, is: cluster.ErrDenied, says: []string{"credentials_from = tenant-a/prod", "get and list Secrets"}},
		"an odd answer":       {status: http.StatusConflict, is: errLent, curable: true, says: []string{"credentials_from = tenant-a/prod", "Look at that Secret"}},
		"an unknown user":     {status: http.StatusUnauthorized, is: cluster.ErrCredentials, says: []string{"kubeconfig of management"}},
		"malformed":           {data: map[string]string{"talosconfig": "contexts: [unclosed " + secret}, is: ErrCredentialsUnusable, says: []string{"talosconfig in Secret tenant-a/c-1, where credentials_from leads"}},
		"a broken key":        {data: map[string]string{"talosconfig": strings.ReplaceAll(usable, "key: ", "key: "+secret)}, is: ErrCredentialsUnusable, says: []string{"Secret tenant-a/c-1"}},
		"a broken kubeconfig": {data: map[string]string{"talosconfig": usable, "kube.config": "clusters: [unclosed " + secret}, is: ErrCredentialsUnusable, says: []string{"kubeconfig in Secret tenant-a/c-1, where credentials_from leads"}},
		"a kubeconfig that runs a program": {
			data: map[string]string{"talosconfig": usable, "kube.config": strings.Replace(kubeconfigOf("https://127.0.0.1:1"), "token: "+managementToken, runsAProgram, 1)},
			is:   ErrCredentialsUnusable, says: []string{"kubeconfig in Secret tenant-a/c-1, where credentials_from leads", "has exec"},
		},
		"nothing answers": {
			management: &ManagementAccess{Kubeconfig: kubeconfigOf(gone.URL)}, is: cluster.ErrUnreachable, curable: true,
			says: []string{"credentials_from = tenant-a/prod", "API server in the kubeconfig of management"},
		},
		"no file":           {management: &ManagementAccess{KubeconfigPath: "does/not/exist"}, is: ErrCredentialsUnusable, says: []string{"provider attribute management.kubeconfig_path: open does/not/exist"}},
		"a malformed file":  {management: &ManagementAccess{KubeconfigPath: malformed}, is: ErrCredentialsUnusable, says: []string{"provider attribute management.kubeconfig_path"}},
		"a context of none": {management: &ManagementAccess{Kubeconfig: kubeconfigOf(gone.URL), Context: "b"}, is: ErrCredentialsUnusable, says: []string{"provider attribute management.kubeconfig", `"b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			api := newManagementAPI(t, test.data)
			api.status = test.status

			access := lentBy(kubeconfigOf(api.URL))
			if test.management != nil {
				access.Management = test.management
			}

			if test.from != nil {
				access.From = test.from
			}

			var servers serverAddresses

			_, err := Dial(t.Context(), testSettings(), access, "", KubeconfigCache{servers: &servers})
			if !errors.Is(err, test.is) {
				t.Fatalf("got %v, want %v", err, test.is)
			}

			if curable := WaitingHelps(err); curable != test.curable {
				t.Errorf("waiting may help: %t", curable)
			}

			shown := told.Noted(t, diag.Diagnostics{Problem("upgrade the cluster", access, err)})[0]

			for _, text := range test.says {
				if !strings.Contains(shown.Detail(), text) {
					t.Errorf("does not say %q:\n%s\n%s", text, shown.Summary(), shown.Detail())
				}
			}

			for _, hidden := range []string{secret, managementToken} {
				if strings.Contains(shown.Summary()+shown.Detail(), hidden) {
					t.Errorf("a secret is in the message:\n%s", shown.Detail())
				}
			}
		})
	}
}

// TestManagementCluster_IsOnlyNeededWhereItIsUsed: whoever upgrades another cluster
// with the same provider block does not miss it.
func TestManagementCluster_IsOnlyNeededWhereItIsUsed(t *testing.T) {
	access := Credentials{
		Endpoints: []string{"127.0.0.1:1"}, Certificate: selfSigned(t), Kubeconfig: kubeconfigOf("https://127.0.0.1:1"),
		Management: &ManagementAccess{KubeconfigPath: "does/not/exist"},
	}

	var servers serverAddresses

	reached, err := Dial(t.Context(), testSettings(), access, "", KubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := reached.Close(); err != nil {
			t.Error(err)
		}
	}()

	to := publication.Publication{To: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}

	if _, err := reached.Operator(to); !errors.Is(err, ErrCredentialsUnusable) {
		t.Errorf("an object in a management cluster out of reach: %v", err)
	}

	if beside, err := reached.Operator(publication.Publication{}); beside != nil || err != nil {
		t.Errorf("the default object: %v, %v", beside, err)
	}

	if store, err := reached.storeOf("id", publication.Publication{}); err != nil || store == nil || store.String() != publication.DefaultObject {
		t.Errorf("the default is published to %v, %v", store, err)
	}
}

// noAccess is an API that nobody asks.
type noAccess struct{ operator.Access }

// TestManagementCluster_HoldsTheObjectThatSomebodyNames: the default is in the upgraded cluster whatever
// else is known, and what somebody names in the management cluster.
func TestManagementCluster_HoldsTheObjectThatSomebodyNames(t *testing.T) {
	own, management := &ManagementCluster{Access: noAccess{}}, &ManagementCluster{Access: noAccess{}}
	named := publication.Publication{To: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}

	for name, test := range map[string]struct {
		reached Connection
		of      publication.Publication
		want    *ManagementCluster
	}{
		"default":                         {Connection{Own: own}, publication.Publication{}, own},
		"default beside a management":     {Connection{Own: own, Management: management}, publication.Publication{}, own},
		"named":                           {Connection{Own: own}, named, own},
		"named, with a management":        {Connection{Own: own, Management: management}, named, management},
		"named, without a Kubernetes API": {Connection{}, named, nil},
		"default beside one of no use":    {Connection{Own: own, Unmanaged: ErrCredentialsUnusable}, publication.Publication{}, own},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := test.reached.home(test.of); got != test.want || err != nil {
				t.Errorf("got %v, %v", got, err)
			}

			beside, err := test.reached.Operator(test.of)
			if want := test.of.To != nil && test.want != nil; (beside != nil) != want || err != nil {
				t.Errorf("operator %v, %v", beside, err)
			}
		})
	}
}

// secret stands for key material that must not show up anywhere.
const secret = "c2VjcmV0LWtleS1tYXRlcmlhbA=="

func TestCredentials_ThatCannotBeUsedAreRefused(t *testing.T) {
	malformed := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(malformed, []byte("contexts: [unclosed "+secret), 0o600); err != nil {
		t.Fatal(err)
	}

	const text = "context: a\ncontexts:\n  a:\n    endpoints: [10.5.0.2]\n    ca: " + secret + "\n    crt: " + secret + "\n    key: " + secret + "\n"

	for name, test := range map[string]struct {
		access Credentials
		env    string
		wanted string
		is     error
		says   string
	}{
		"nothing given":          {Credentials{}, "", "", ErrCredentialsMissing, "no credentials"},
		"not known yet":          {Credentials{Unknown: []string{"talosconfig"}}, "", "", ErrCredentialsUnknown, "talosconfig"},
		"path that is not there": {Credentials{TalosconfigPath: "does/not/exist"}, "", "", ErrCredentialsUnusable, "provider attribute talosconfig_path"},
		"variable names nothing": {Credentials{}, "does/not/exist", "", ErrCredentialsUnusable, "environment variable TALOSCONFIG"},
		"malformed file":         {Credentials{TalosconfigPath: malformed}, "", "", ErrCredentialsUnusable, "talosconfig_path"},
		"malformed text":         {Credentials{Talosconfig: "{"}, "", "", ErrCredentialsUnusable, "provider attribute talosconfig"},
		"attribute wins":         {Credentials{Talosconfig: "{"}, malformed, "", ErrCredentialsUnusable, "provider attribute talosconfig"},
		"unknown context":        {Credentials{Talosconfig: text}, "", "b", ErrCredentialsUnusable, `"b"`},
		"provider's context":     {Credentials{Talosconfig: text, Context: "c"}, "", "", ErrCredentialsUnusable, `"c"`},
		"certificate is not PEM": {Credentials{Talosconfig: text}, "", "", ErrCredentialsUnusable, "PEM"},
		"context without talosconfig": {
			Credentials{Endpoints: []string{"10.5.0.2"}, Certificate: &ClientCertificate{CA: secret, Cert: secret, Key: secret}},
			"", "prod",
			ErrCredentialsUnusable, "remove context",
		},
		"broken certificate": {
			Credentials{Endpoints: []string{"10.5.0.2"}, Certificate: &ClientCertificate{CA: secret, Cert: secret, Key: secret}},
			"", "",
			ErrCredentialsUnusable, "client_configuration",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(talosconfigEnv, test.env)

			_, err := test.access.talos(test.wanted)
			if !errors.Is(err, test.is) {
				t.Fatalf("got %v, want %v", err, test.is)
			}

			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}

			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret is in the error: %s", err)
			}
		})
	}
}

// TestCredentials_PathsInAKubeconfigAreRelativeToItsFile, as kubectl reads them, and to nothing else.
func TestCredentials_PathsInAKubeconfigAreRelativeToItsFile(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "prod.key")
	relative := "clusters: [{name: c, cluster: {server: \"https://10.5.0.2:6443\", certificate-authority: ca.crt}}]\n" +
		"users: [{name: u, user: {client-certificate: keys/prod.crt, client-key: " + elsewhere + "}}]\n"
	absolute := "users: [{name: u, user: {client-key: " + elsewhere + "}}]\n"

	for name, content := range map[string]string{"relative": relative, "absolute": absolute, "malformed": "clusters: {", "talosconfig": "contexts: {a: {ca: ca.crt}}\n"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		given, err := (Credentials{KubeconfigPath: file}).kubeconfig()
		if err != nil {
			t.Fatal(err)
		}

		managed, _, err := (ManagementAccess{KubeconfigPath: file}).kubeconfig()
		if err != nil || !bytes.Equal(managed, given) {
			t.Errorf("%s: of the management cluster it is %q, %v", name, managed, err)
		}

		if name != "relative" {
			if string(given) != content {
				t.Errorf("%s: it is changed to %q", name, given)
			}

			continue
		}

		for _, path := range []string{filepath.Join(dir, "ca.crt"), filepath.Join(dir, "keys", "prod.crt"), elsewhere} {
			if !strings.Contains(string(given), ": "+path+"\n") {
				t.Errorf("it does not name %s:\n%s", path, given)
			}
		}
	}
}

func TestCredentials_KubeconfigIsOptional(t *testing.T) {
	if data, err := (Credentials{}).kubeconfig(); data != nil || err != nil {
		t.Errorf("got %q, %v", data, err)
	}

	if data, err := (Credentials{Kubeconfig: "text"}).kubeconfig(); string(data) != "text" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}

	if _, err := (Credentials{KubeconfigPath: "does/not/exist"}).kubeconfig(); !errors.Is(err, ErrCredentialsUnusable) {
		t.Errorf("got %v", err)
	}
}
