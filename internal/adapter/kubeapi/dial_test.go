// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestAnAPIServerThatIsDownIsPassedBy(t *testing.T) {
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

func TestAConnectionWhoseServerDiedDoesNotHoldUpTheNextCall(t *testing.T) {
	t.Parallel()

	cp0, cp1 := newServer(t, nil), newServer(t, nil)
	f := &front{ways: map[string]string{own: cp0.address(), "10.0.0.2:6443": cp1.address()}}
	api := f.client(t, cp0, "", "10.0.0.2:6443")

	if _, err := api.UID(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The machine is gone, without a word.
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

func TestTheOwnAPIServerIsAllThatIsAskedWhileItAnswers(t *testing.T) {
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

func TestAServerOfAnotherClusterIsNoAlternative(t *testing.T) {
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

	// It does not stand in the way of the one behind it.
	f.leads("10.0.0.3:6443", ours.address())

	if _, err := api.UID(t.Context()); err != nil {
		t.Error(err)
	}

	// A foreign server in the place of the own one is no reason to look further.
	f.leads(own, foreign.address())
	api = f.client(t, ours, "", "10.0.0.3:6443")

	if _, err := api.UID(t.Context()); !errors.Is(err, cluster.ErrCredentials) {
		t.Errorf("%v, want refused credentials", err)
	}
}

func TestAlternativesNeedAWayAndAnIdentity(t *testing.T) {
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

func TestOtherClientsOfTheSameAPIShareItsWays(t *testing.T) {
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
