// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// clusterLabel is on the Secret that Vitistack's operator keeps of a cluster.
const clusterLabel = "cluster.vitistack.io/cluster-id"

// beside finds the Secret that the operator keeps beside the KubernetesCluster. It
// is named after the ID of the cluster, with a prefix that the operator was
// configured to put before it. ErrNotFound means that there is none; ErrRefused
// that there is more than one.
func beside(ctx context.Context, access cluster.SecretAccess, of cluster.Reference, found object) (cluster.Secret, error) {
	what := "find the Secret of " + of.String()

	id := found.text("spec", "data", "clusterId")
	if id == "" {
		return cluster.Secret{}, fmt.Errorf("unable to %s: %w: its spec.data.clusterId is empty", what, cluster.ErrNotFound)
	}

	if faults := validation.IsValidLabelValue(id); len(faults) > 0 {
		// As a part of a selector it could choose other Secrets.
		return cluster.Secret{}, fmt.Errorf("unable to %s: %w: its spec.data.clusterId %q is no value of a label: %s",
			what, cluster.ErrNotFound, shortened(id), strings.Join(faults, ", "))
	}

	selector := clusterLabel + "=" + id

	labelled, listed := access.Secrets(ctx, of.Namespace, selector)
	if listed != nil && !errors.Is(listed, cluster.ErrDenied) {
		return cluster.Secret{}, listed
	}

	switch kept := slices.DeleteFunc(labelled, foreign); len(kept) {
	case 0:
	case 1:
		return kept[0], nil
	default:
		return cluster.Secret{}, fmt.Errorf("unable to %s: %w: %s and %s both carry the label %s; take it off the one that is not the operator's",
			what, cluster.ErrRefused, secretName(kept[0]), secretName(kept[1]), selector)
	}

	// Credentials that may not list may still be allowed to read it by its name.
	named, err := access.Secret(ctx, of.Namespace, id)

	switch {
	case err == nil && foreign(named):
		err = cluster.ErrNotFound
	case err == nil:
		return named, nil
	}

	if listed != nil {
		return cluster.Secret{}, listed
	}

	if errors.Is(err, cluster.ErrNotFound) {
		return cluster.Secret{}, fmt.Errorf("unable to %s: %w: none of the operator's in the namespace %s carries the label %s, or is named %s",
			what, cluster.ErrNotFound, of.Namespace, selector, id)
	}

	return cluster.Secret{}, err
}

// foreign tells that the Secret holds nothing that the operator keeps in its own
// from the beginning.
func foreign(secret cluster.Secret) bool {
	return !slices.ContainsFunc([]string{talosconfigKey, talosVersionKey, kubernetesVersionKey}, func(key string) bool {
		_, stands := secret.Data[key]

		return stands
	})
}

func secretName(secret cluster.Secret) string {
	return cluster.Reference{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name}.String()
}
