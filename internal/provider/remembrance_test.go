// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// kubeconfigUntil is a kubeconfig whose client certificate expires then.
func kubeconfigUntil(t *testing.T, expires time.Time) string {
	t.Helper()

	signed := signedUntil(t, expires)

	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:7443'}}]\n"+
		"users: [{name: a, user: {client-certificate-data: %s, client-key-data: %s}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", signed.Cert, signed.Key)
}

func TestARememberedKubeconfigIsUsedWhileItLasts(t *testing.T) {
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
			remembered kubeconfigCache
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

// TestAKubeconfigOfTheUserIsLeftAlone: only what the Talos API gave can be asked for
// again.
func TestAKubeconfigOfTheUserIsLeftAlone(t *testing.T) {
	given := kubeconfigUntil(t, time.Now().Add(-time.Minute))
	access := credentials{Endpoints: []string{"127.0.0.1:1"}, Certificate: selfSigned(t), Kubeconfig: given}

	reached, err := dial(t.Context(), testSettings(), access, "", kubeconfigCache{servers: &serverAddresses{}})
	if err != nil {
		t.Fatal(err)
	}

	if string(reached.kubeconfig) != given || reached.removals == nil {
		t.Error("it is not used")
	}

	if err := reached.close(); err != nil {
		t.Error(err)
	}

	// The same one, remembered, would be asked for, in vain.
	access.Kubeconfig = ""

	reached, err = dial(t.Context(), testSettings(), access, "", kubeconfigCache{kubeconfig: []byte(given), servers: &serverAddresses{}})
	if err != nil {
		t.Fatal(err)
	}

	if reached.removals != nil {
		t.Error("one that expired is used again")
	}

	if err := reached.close(); err != nil {
		t.Error(err)
	}
}
