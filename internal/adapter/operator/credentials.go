// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The credentials in the Secret of Vitistack's operator.
const (
	talosconfigKey = "talosconfig"
	kubeconfigKey  = "kube.config"
)

// Credentials are what Vitistack's operator keeps of a cluster.
type Credentials struct {
	// Talosconfig is never empty; Kubeconfig is where the operator has none yet.
	Talosconfig, Kubeconfig []byte
	// Source names where they are from, such as "Secret tenant-a/prod".
	Source string
}

// ReadCredentials reads the credentials that Vitistack's operator keeps beside the
// KubernetesCluster of the name, or those in a Secret of that very name where there
// is no such KubernetesCluster, or it may not be read. ErrNotFound means that there
// is neither, or that there is no talosconfig yet.
func ReadCredentials(ctx context.Context, access Access, namespace, name string) (Credentials, error) {
	secret, err := credentialsSecret(ctx, access, namespace, name)
	if err != nil {
		return Credentials{}, err
	}

	if len(secret.Data[talosconfigKey]) == 0 {
		return Credentials{}, fmt.Errorf("unable to take credentials from %s: %w: its key %s is missing or empty",
			secretName(secret), cluster.ErrNotFound, talosconfigKey)
	}

	return Credentials{
		Talosconfig: secret.Data[talosconfigKey],
		Kubeconfig:  secret.Data[kubeconfigKey],
		Source:      secretName(secret),
	}, nil
}

func credentialsSecret(ctx context.Context, access Access, namespace, name string) (cluster.Secret, error) {
	of := cluster.Reference{APIVersion: vitistackVersion, Kind: vitistackKind, Namespace: namespace, Name: name}

	found, missing := access.Object(ctx, of)
	if missing == nil {
		return beside(ctx, access, of, found)
	}

	if !errors.Is(missing, cluster.ErrNotFound) && !errors.Is(missing, cluster.ErrDenied) {
		return cluster.Secret{}, missing
	}

	secret, err := access.Secret(ctx, namespace, name)

	switch {
	case !errors.Is(err, cluster.ErrNotFound):
		return secret, err
	case errors.Is(missing, cluster.ErrDenied):
		return cluster.Secret{}, fmt.Errorf("unable to find credentials: there is no Secret %s/%s, and whether there is %s cannot be told: %w",
			namespace, name, of, missing)
	default:
		return cluster.Secret{}, fmt.Errorf("unable to find credentials: %w: there is neither %s nor Secret %s/%s",
			cluster.ErrNotFound, of, namespace, name)
	}
}
