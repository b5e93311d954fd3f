// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestUselessCredentialsFailFastAndSayWhy(t *testing.T) {
	for suffix, test := range map[string]struct {
		want error
		says string
	}{
		"-expired": {cluster.ErrCredentials, "the client certificate expired on "},
		"-foreign": {cluster.ErrCredentials, "belongs to another cluster or is out of date"},
		"-dead":    {cluster.ErrUnreachable, "no endpoint of talosconfig context \"talossim-dead\" answered: 10.5.255.254 connection refused"},
		"-worker":  {cluster.ErrDenied, "endpoints must be control planes"},
	} {
		t.Run(suffix, func(t *testing.T) {
			inBubble(t, model.Options{}, func(r *rig) {
				c := r.client(suffix)
				started := time.Now()

				_, err := c.Machine(r.Context(), cp0, nil)
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
					r.Errorf("observing a node: %v, want %v and %q", err, test.want, test.says)
				}

				if took := time.Since(started); took > 10*time.Second {
					r.Errorf("it took %s", took)
				}

				if err := c.Reboot(r.Context(), cp0, cluster.RebootDefault); !errors.Is(err, test.want) || errors.Is(err, cluster.ErrOutcomeUnknown) {
					r.Errorf("rebooting a node: %v, want %v", err, test.want)
				}
			})
		})
	}
}

func TestAWorkerAsEndpointStillAnswersForItself(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("-worker")

		if _, err := c.Machine(r.Context(), worker0, nil); err != nil {
			r.Errorf("the worker about itself: %v", err)
		}

		if id, err := c.ClusterID(r.Context()); err != nil || id == "" {
			r.Errorf("cluster ID: %q, %v", id, err)
		}

		if _, err := c.Kubeconfig(r.Context()); err == nil {
			r.Error("a worker gave a kubeconfig")
		}
	})
}

func TestKubeconfigComesFromTheTalosAPI(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		got, err := r.client("").Kubeconfig(r.Context())
		if err != nil || string(got) != kubeconfig {
			r.Errorf("kubeconfig %q, %v", got, err)
		}
	})
}
