// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/client"
)

// Kubeconfig asks a control plane for the admin kubeconfig of the cluster, as
// YAML. Only os:admin may: the error wraps cluster.ErrDenied otherwise.
func (c *Client) Kubeconfig(ctx context.Context) ([]byte, error) {
	var kubeconfig []byte

	op := operation{what: "get the kubeconfig of the cluster", timeout: kubeconfigTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		kubeconfig, err = api.Kubeconfig(ctx)

		return err
	})
	if err != nil {
		return nil, err
	}

	if len(kubeconfig) == 0 {
		return nil, fmt.Errorf("unable to %s: %w", op.what, errors.New("the answer is empty"))
	}

	return kubeconfig, nil
}
