// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

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

func talosconfigOf(certificate *clientCertificate) string {
	return fmt.Sprintf("context: admin@prod\ncontexts:\n  admin@prod:\n    endpoints: [127.0.0.1:1]\n    ca: %s\n    crt: %s\n    key: %s\n",
		certificate.CA, certificate.Cert, certificate.Key)
}

func lentBy(kubeconfig string) credentials {
	return credentials{Management: &managementAccess{Kubeconfig: kubeconfig}, From: &credentialsSource{Namespace: "tenant-a", Name: "prod"}}
}

// TestCredentialsComeFromTheManagementCluster: TALOSCONFIG names another cluster,
// and is not looked at.
func TestCredentialsComeFromTheManagementCluster(t *testing.T) {
	t.Setenv(talosconfigEnv, "does/not/exist")

	api := newManagementAPI(t, map[string]string{"talosconfig": talosconfigOf(selfSigned(t)), "kube.config": kubeconfigOf("https://127.0.0.1:1")})

	var servers serverAddresses

	reached, err := dial(t.Context(), testSettings(), lentBy(kubeconfigOf(api.URL)), "", kubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	if reached.context != "admin@prod" || reached.own == nil || reached.management == nil || string(reached.kubeconfig) != kubeconfigOf("https://127.0.0.1:1") {
		t.Errorf("reached %s, own %v, management %v", reached.name, reached.own, reached.management)
	}

	if err := reached.close(); err != nil {
		t.Error(err)
	}

	if _, err := dial(t.Context(), testSettings(), lentBy(kubeconfigOf(api.URL)), "another", kubeconfigCache{servers: &servers}); !errors.Is(err, errUnusable) ||
		!strings.Contains(err.Error(), `Secret tenant-a/c-1`) || !strings.Contains(err.Error(), `"another"`) {
		t.Errorf("another context: %v", err)
	}
}

// TestCredentialsThatCannotBeLent: the message says which attribute and which
// object it is about, and holds nothing of what is secret.
func TestCredentialsThatCannotBeLent(t *testing.T) {
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
		management *managementAccess
		from       *credentialsSource
		is         error
		says       []string
		// curable tells that a plan goes on.
		curable bool
	}{
		"no object": {
			data: map[string]string{"talosconfig": usable}, from: &credentialsSource{"tenant-a", "staging"}, is: cluster.ErrNotFound,
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
		"malformed":           {data: map[string]string{"talosconfig": "contexts: [unclosed " + secret}, is: errUnusable, says: []string{"talosconfig in Secret tenant-a/c-1, where credentials_from leads"}},
		"a broken key":        {data: map[string]string{"talosconfig": strings.ReplaceAll(usable, "key: ", "key: "+secret)}, is: errUnusable, says: []string{"Secret tenant-a/c-1"}},
		"a broken kubeconfig": {data: map[string]string{"talosconfig": usable, "kube.config": "clusters: [unclosed " + secret}, is: errUnusable, says: []string{"kubeconfig in Secret tenant-a/c-1, where credentials_from leads"}},
		"nothing answers": {
			management: &managementAccess{Kubeconfig: kubeconfigOf(gone.URL)}, is: cluster.ErrUnreachable, curable: true,
			says: []string{"credentials_from = tenant-a/prod", "API server in the kubeconfig of management"},
		},
		"no file":           {management: &managementAccess{KubeconfigPath: "does/not/exist"}, is: errUnusable, says: []string{"provider attribute management.kubeconfig_path: open does/not/exist"}},
		"a malformed file":  {management: &managementAccess{KubeconfigPath: malformed}, is: errUnusable, says: []string{"provider attribute management.kubeconfig_path"}},
		"a context of none": {management: &managementAccess{Kubeconfig: kubeconfigOf(gone.URL), Context: "b"}, is: errUnusable, says: []string{"provider attribute management.kubeconfig", `"b"`}},
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

			_, err := dial(t.Context(), testSettings(), access, "", kubeconfigCache{servers: &servers})
			if !errors.Is(err, test.is) {
				t.Fatalf("got %v, want %v", err, test.is)
			}

			shown := unplannable(access, err, "prod")
			noted(t, diag.Diagnostics{shown})
			if curable := shown.Severity().String() == "Warning"; curable != test.curable {
				t.Errorf("a plan says a %s", shown.Severity())
			}

			noted(t, diag.Diagnostics{problem("upgrade the cluster", access, err)})

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

// TestManagementClusterIsOnlyNeededWhereItIsUsed: whoever upgrades another cluster
// with the same provider block does not miss it.
func TestManagementClusterIsOnlyNeededWhereItIsUsed(t *testing.T) {
	access := credentials{
		Endpoints: []string{"127.0.0.1:1"}, Certificate: selfSigned(t), Kubeconfig: kubeconfigOf("https://127.0.0.1:1"),
		Management: &managementAccess{KubeconfigPath: "does/not/exist"},
	}

	var servers serverAddresses

	reached, err := dial(t.Context(), testSettings(), access, "", kubeconfigCache{servers: &servers})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := reached.close(); err != nil {
			t.Error(err)
		}
	}()

	to := publication{to: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}

	if _, err := reached.operator(to); !errors.Is(err, errUnusable) {
		t.Errorf("an object in a management cluster out of reach: %v", err)
	}

	if beside, err := reached.operator(publication{}); beside != nil || err != nil {
		t.Errorf("the default object: %v, %v", beside, err)
	}

	if store, err := reached.storeOf("id", publication{}); err != nil || store == nil || store.String() != defaultObject {
		t.Errorf("the default is published to %v, %v", store, err)
	}
}

// TestObjectIsLookedForWhereItIs: the default is in the upgraded cluster whatever
// else is known, and what somebody names in the management cluster.
func TestObjectIsLookedForWhereItIs(t *testing.T) {
	own, management := &managementCluster{access: &fakeHome{}}, &managementCluster{access: &fakeHome{}}
	named := publication{to: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}

	for name, test := range map[string]struct {
		reached connection
		of      publication
		want    *managementCluster
	}{
		"default":                         {connection{own: own}, publication{}, own},
		"default beside a management":     {connection{own: own, management: management}, publication{}, own},
		"named":                           {connection{own: own}, named, own},
		"named, with a management":        {connection{own: own, management: management}, named, management},
		"named, without a Kubernetes API": {connection{}, named, nil},
		"default beside one of no use":    {connection{own: own, unmanaged: errUnusable}, publication{}, own},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := test.reached.home(test.of); got != test.want || err != nil {
				t.Errorf("got %v, %v", got, err)
			}

			beside, err := test.reached.operator(test.of)
			if want := test.of.to != nil && test.want != nil; (beside != nil) != want || err != nil {
				t.Errorf("operator %v, %v", beside, err)
			}
		})
	}
}
