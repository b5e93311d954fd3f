// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestClient_NamesWhatIsWrongWithAKubeconfig(t *testing.T) {
	t.Parallel()

	const secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA=="

	cluster := "clusters: [{name: c, cluster: {server: \"https://10.5.0.2:6443\"}}]\n"
	contexts := "contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: gone, user: u}}]\n"

	for name, test := range map[string]struct{ yaml, context, want string }{
		"empty":           {"\n", "", "it is empty"},
		"malformed":       {"contexts: {" + secret, "", "malformed"},
		"other YAML":      {"contexts: " + secret, "", "malformed"},
		"a talosconfig":   {"context: a\ncontexts: {a: {endpoints: [10.5.0.2], key: " + secret + "}}\n", "", "it is a talosconfig"},
		"no contexts":     {"apiVersion: v1\nkind: Config\n" + cluster, "", "no contexts"},
		"ambiguous":       {cluster + contexts, "", `there are "a", "b"`},
		"unknown context": {cluster + contexts, "x", `context "x" does not exist, there are "a", "b"`},
		"unknown current": {"current-context: x\n" + cluster + contexts, "", `current context "x" does not exist`},
		"no server":       {cluster + contexts, "b", `cluster "gone" has no server`},
		"key not PEM": {
			cluster + contexts + "users: [{name: u, user: {client-certificate-data: " + secret + ", client-key-data: " + secret + "}}]\n", "a", "kubeconfig not usable",
		},
		"two users of one name": {
			cluster + contexts + "users: [{name: u, user: {client-key-data: " + secret + ", password: s3cret}}, {name: u, user: {}}]\n", "a", `duplicate name "u"`,
		},
		"two clusters of one name": {
			cluster[:len(cluster)-2] + ", {name: c, cluster: {server: \"https://10.5.0.3:6443\", proxy-url: \"http://a:s3cret@proxy\"}}]\n" + contexts, "a", `duplicate name "c"`,
		},
		"a password like an alias":     {cluster + contexts + "users: [{name: u, user: {password: *s3cret}}]\n", "a", "malformed"},
		"a user with an empty key":     {cluster + contexts + "users: [{name: u, user: {~: s3cret}}]\n", "a", "malformed"},
		"a user that is a key":         {cluster + contexts + "users: [{name: u, user: {{password: s3cret}: a}}]\n", "a", "malformed"},
		"a password that is no number": {cluster + contexts + "users: [{name: u, user: {password: !!int s3cret}}]\n", "a", "malformed"},
		"a server with one slash":      {strings.Replace(cluster, "https://", "https:/admin:s3cret@", 1) + contexts, "a", "server contains a user name"},
		"a proxy without a scheme":     {strings.Replace(cluster, "}}]", ", proxy-url: \"admin:s3cret@proxy:3128\"}}]", 1) + contexts, "a", "proxy-url is not a URL"},
		"a proxy that is no URL":       {strings.Replace(cluster, "}}]", ", proxy-url: \"http://admin:s3cret%zz@proxy\"}}]", 1) + contexts, "a", "proxy-url is not a URL"},
		"a server that is no URL":      {strings.Replace(cluster, "https://", "https://admin:s3cret%zz@", 1) + contexts, "a", "server contains a user name"},
		"a server with a password":     {strings.Replace(cluster, "https://", "https://admin:s3cret@", 1) + contexts, "a", "server contains a user name"},
		"a server without a host":      {strings.Replace(cluster, "10.5.0.2:6443", "", 1) + contexts, "a", "server is not an address"},
	} {
		_, err := kubeapi.New([]byte(test.yaml), test.context, kubeapi.Options{})
		if !errors.Is(err, kubeapi.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)

			continue
		}

		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, test.want)
		}

		if strings.Contains(err.Error(), secret[:12]) {
			t.Errorf("%s: the error shows the beginning of a key", name)
		}

		if strings.Contains(err.Error(), "115 101 99 114 101 116") { // "secret" as a list of bytes
			t.Errorf("%s: the error shows a key: %v", name, err)
		}

		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows a password: %v", name, err)
		}
	}
}

// TestClient_SelfContainedKubeconfigNamesNoProgramAndNoFile: another machine must not choose what runs here.
func TestClient_SelfContainedKubeconfigNamesNoProgramAndNoFile(t *testing.T) {
	t.Parallel()

	const contexts = "contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: c, user: v}}]\n"

	for name, test := range map[string]struct{ cluster, user, refused string }{
		"a token":            {"", "token: t", ""},
		"a program":          {"", "exec: {apiVersion: client.authentication.k8s.io/v1, command: id, interactiveMode: Never}", "exec"},
		"a file of a token":  {"", "tokenFile: /dev/null", "tokenFile"},
		"a file of a key":    {"", "client-key: /dev/null", "client-key"},
		"a certificate":      {"", "client-certificate: /dev/null", "client-certificate"},
		"an authority":       {", certificate-authority: /dev/null", "token: t", "certificate-authority"},
		"an old auth plugin": {"", "auth-provider: {name: oidc}", "auth-provider"},
	} {
		kubeconfig := []byte("clusters: [{name: c, cluster: {server: \"https://10.5.0.2:6443\"" + test.cluster + "}}]\n" + contexts +
			"users: [{name: u, user: {" + test.user + "}}, {name: v, user: {token: t}}]\n")

		_, err := kubeapi.New(kubeconfig, "a", kubeapi.Options{SelfContained: true})
		if refused := err != nil; refused != (test.refused != "") || refused && !strings.Contains(err.Error(), `context "a" has `+test.refused+":") {
			t.Errorf("%s: %v", name, err)
		}

		if _, err := kubeapi.New(kubeconfig, "a", kubeapi.Options{}); err != nil && strings.Contains(err.Error(), "another machine") {
			t.Errorf("%s, from this machine: %v", name, err)
		}
	}
}

func TestUnavailable_AnswersItsErrorToEverything(t *testing.T) {
	t.Parallel()

	reason := errors.New("no way there")
	api := kubeapi.NewUnavailable(reason)

	for name, call := range portCalls(api) {
		if err := call(t.Context()); !errors.Is(err, reason) {
			t.Errorf("%s: %v, want the reason", name, err)
		}
	}
}

func TestDial_APIServerThatIsDownIsPassedBy(t *testing.T) {
	t.Parallel()

	for name, down := range map[string]string{"refuses": "", "swallows packets": "nowhere"} {
		cp1 := newServer(t, nil)
		f := &front{ways: map[string]string{own: down, "10.0.0.2:6443": "", "10.0.0.3:6443": cp1.address()}}
		api := f.client(t, cp1, "", own, "10.0.0.2:6443", "10.0.0.3:6443", "10.0.0.4:6443")

		if uid, err := api.UID(t.Context()); err != nil || uid != "u" {
			t.Errorf("one that %s: UID %q, %v", name, uid, err)
		}

		if got, want := f.taken(), []string{own, "10.0.0.2:6443", "10.0.0.3:6443"}; !slices.Equal(got, want) {
			t.Errorf("one that %s: dialled %q, want %q", name, got, want)
		}

		// Which one answered is remembered.
		cp1.CloseClientConnections()

		eventually(t, "another connection", func() (bool, error) {
			_, err := api.UID(t.Context())

			return err == nil, err
		})

		if got := f.taken(); len(got) > 0 && got[0] != "10.0.0.3:6443" {
			t.Errorf("one that %s: dialled %q next", name, got)
		}
	}
}

func TestDial_DeadConnectionDoesNotHoldUpTheNextCall(t *testing.T) {
	t.Parallel()

	cp0, cp1 := newServer(t, nil), newServer(t, nil)
	f := &front{ways: map[string]string{own: cp0.address(), "10.0.0.2:6443": cp1.address()}}
	api := f.client(t, cp0, "", "10.0.0.2:6443")

	if _, err := api.UID(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The machine goes silent without closing its connections.
	f.freeze()
	f.leads(own, "nowhere")

	started := time.Now()

	if _, err := api.UID(t.Context()); err != nil && !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("the call that finds out: %v, want it unreachable", err)
	}

	if took := time.Since(started); took > 15*time.Second {
		t.Errorf("the call that finds out took %s", took)
	}

	if _, err := api.UID(t.Context()); err != nil || cp1.requests.Load() == 0 {
		t.Errorf("the call after it: %v, with %d requests to the other API server", err, cp1.requests.Load())
	}
}

func TestDial_OnlyTheOwnAPIServerIsAskedWhileItAnswers(t *testing.T) {
	t.Parallel()

	cp0 := newServer(t, nil)
	f := &front{ways: map[string]string{own: cp0.address()}}
	api := f.client(t, cp0, "", "10.0.0.2:6443")

	if _, err := api.UID(t.Context()); err != nil {
		t.Error(err)
	}

	if got := f.taken(); !slices.Equal(got, []string{own}) {
		t.Errorf("dialled %q", got)
	}
}

func TestDial_ServerOfAnotherClusterIsNoAlternative(t *testing.T) {
	t.Parallel()

	ours := newServer(t, nil)
	foreign := newServer(t, foreignCertificate(t))
	f := &front{ways: map[string]string{"10.0.0.2:6443": foreign.address()}}
	api := f.client(t, ours, "", "10.0.0.2:6443", "10.0.0.3:6443")

	_, err := api.UID(t.Context())
	if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrCredentials) {
		t.Errorf("%v, want that the own server is down", err)
	}

	for _, says := range []string{own, "10.0.0.2:6443 (which is not", "10.0.0.3:6443"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}

	if foreign.requests.Load() != 0 {
		t.Error("the server of another cluster got a request")
	}

	// It does not hide the address after it.
	f.leads("10.0.0.3:6443", ours.address())

	if _, err := api.UID(t.Context()); err != nil {
		t.Error(err)
	}

	// A foreign server at the address of our own is no reason to look further.
	f.leads(own, foreign.address())
	api = f.client(t, ours, "", "10.0.0.3:6443")

	if _, err := api.UID(t.Context()); !errors.Is(err, cluster.ErrCredentials) {
		t.Errorf("%v, want refused credentials", err)
	}
}

func TestDial_AlternativesNeedAnAddressAndAnIdentity(t *testing.T) {
	t.Parallel()

	cp1 := newServer(t, nil)

	for name, extra := range map[string]string{"proxy": `, proxy-url: "http://10.9.9.9:3128"`, "no verification": ", insecure-skip-tls-verify: true"} {
		f := &front{ways: map[string]string{"10.0.0.2:6443": cp1.address()}}
		api := f.client(t, cp1, extra, "10.0.0.2:6443")

		if _, err := api.UID(t.Context()); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("%s: %v, want it unreachable", name, err)
		}

		if slices.Contains(f.taken(), "10.0.0.2:6443") {
			t.Errorf("%s: an alternative was tried", name)
		}
	}
}

func TestDial_ClientsOfTheSameAPIShareItsAlternatives(t *testing.T) {
	t.Parallel()

	cp1 := newServer(t, nil)
	f := &front{ways: map[string]string{"10.0.0.2:6443": cp1.address()}}
	api := f.client(t, cp1, "", "10.0.0.2:6443")

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.Config().Host+"/api/v1/namespaces/kube-system", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	response, err := api.Config().Transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}

	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s, %v", response.Status, err)
	}

	if took := cp1.requests.Load(); took != 1 {
		t.Errorf("%d requests, want one", took)
	}
}

// slowDial makes connections when it is told to, even if nobody waits for them any more, and counts the open ones.
type slowDial struct {
	begun, goes chan struct{}
	to          string
	made, ended atomic.Int32
}

func (s *slowDial) dial(_ context.Context, network, _ string) (net.Conn, error) {
	s.begun <- struct{}{}
	<-s.goes

	conn, err := net.Dial(network, s.to)
	if err != nil {
		return nil, err
	}

	s.made.Add(1)

	return &countedConn{Conn: conn, of: s}, nil
}

type countedConn struct {
	net.Conn

	of   *slowDial
	once atomic.Bool
}

func (c *countedConn) Close() error {
	if c.once.CompareAndSwap(false, true) {
		c.of.ended.Add(1)
	}

	return c.Conn.Close()
}

// TestClient_NoConnectionOutlivesIt: the connection of a request is made even if nobody waits for the request any
// more.
func TestClient_NoConnectionOutlivesIt(t *testing.T) {
	t.Parallel()

	for name, alternatives := range map[string]func() []string{"with alternatives": func() []string { return nil }, "without": nil} {
		server := newServer(t, nil)
		slow := &slowDial{begun: make(chan struct{}), goes: make(chan struct{}), to: server.address()}
		authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))

		client, err := kubeapi.New([]byte(fmt.Sprintf(
			"clusters: [{name: c, cluster: {server: \"https://%s\", certificate-authority-data: %s}}]\ncontexts: [{name: a, context: {cluster: c}}]\n", own, authority,
		)), "", kubeapi.Options{DialContext: slow.dial, Alternatives: alternatives})
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)

		go func() {
			_, err := client.UID(ctx)
			answered <- err
		}()

		<-slow.begun
		cancel()

		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}

		client.Close()
		close(slow.goes)

		eventually(t, "the end of the connection", func() (bool, error) {
			return slow.made.Load() == 1 && slow.ended.Load() == 1, nil
		})

		if _, err := client.UID(t.Context()); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("%s: %v from a client that is closed", name, err)
		}
	}
}
