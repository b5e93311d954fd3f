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

// clusterLabel is the label of the Secret that Vitistack's operator keeps for a cluster.
const clusterLabel = "cluster.vitistack.io/cluster-id"

// beside returns the Secret that the operator keeps for the KubernetesCluster. It is named after the ID of the
// cluster, with a prefix from the configuration of the operator. ErrNotFound means that there is none; ErrRefused
// that there is more than one.
func beside(ctx context.Context, access cluster.SecretAccess, of cluster.Reference, found object) (cluster.Secret, error) {
	what := "find the Secret of " + of.String()

	id := found.text("spec", "data", "clusterId")
	if id == "" {
		return cluster.Secret{}, fmt.Errorf("unable to %s: %w: its spec.data.clusterId is empty", what, cluster.ErrNotFound)
	}

	if faults := validation.IsValidLabelValue(id); len(faults) > 0 {
		// As part of a selector it could select other Secrets.
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

	// Credentials that may not list may still be allowed to get the Secret by name.
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

// foreign reports whether the Secret lacks all of the keys that the operator sets in its own from the beginning.
func foreign(secret cluster.Secret) bool {
	return !slices.ContainsFunc([]string{talosconfigKey, talosVersionKey, kubernetesVersionKey}, func(key string) bool {
		_, stands := secret.Data[key]

		return stands
	})
}

func secretName(secret cluster.Secret) string {
	return cluster.Reference{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name}.String()
}

// The keys of the credentials in the Secret of Vitistack's operator.
const (
	talosconfigKey = "talosconfig"
	kubeconfigKey  = "kube.config"
)

// Credentials are the credentials that Vitistack's operator keeps for a cluster.
type Credentials struct {
	// Talosconfig is never empty; Kubeconfig is empty as long as the operator has none.
	Talosconfig, Kubeconfig []byte
	// Source names the Secret that they are from, such as "Secret tenant-a/prod".
	Source string
}

// ReadCredentials reads the credentials that Vitistack's operator keeps for the KubernetesCluster with the name. If
// there is no such KubernetesCluster, or it may not be read, they are read from the Secret with that very name.
// ErrNotFound means that there is neither, or that there is no talosconfig yet.
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

// attempts is how often a change is tried if somebody else writes the object at the same time, or if the answer is
// lost. An operator that is at work writes every few seconds.
const attempts = 5

// rewrite changes an object on the condition that it was not written since it was read. decide returns the patch
// for the object, nil for none; rewrite returns its errors. read is the object if it was read already, and nil
// otherwise.
func rewrite(ctx context.Context, access cluster.ObjectAccess, of cluster.Reference, read object, decide func(object) (map[string]any, error)) error {
	var last error

	for range attempts {
		if read == nil {
			found, err := access.Object(ctx, of)
			if err != nil {
				return unseen(err, last)
			}

			read = found
		}

		patch, err := decide(read)
		if err != nil || patch == nil {
			return err
		}

		_, last = access.PatchObject(ctx, of, "", conditional(patch, read.text("metadata", "resourceVersion")))
		if !repeatable(last) {
			return last
		}

		read = nil
	}

	return fmt.Errorf("unable to change %s in %d attempts: %w", of, attempts, last)
}

// conditional limits a patch to the given version of the object.
func conditional(patch map[string]any, resourceVersion string) map[string]any {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}

	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}

	patch["metadata"] = metadata

	return patch
}

// annotate returns a patch that sets one annotation; nil removes it.
func annotate(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// repeatable reports whether reading the object again shows what is left to do.
func repeatable(err error) bool {
	return errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrOutcomeUnknown)
}

// unseen returns the error of a read after an earlier change. If that change may have been made, the error says so.
func unseen(err, earlier error) error {
	if !errors.Is(earlier, cluster.ErrOutcomeUnknown) || errors.Is(err, cluster.ErrNotFound) {
		return err
	}

	return fmt.Errorf("%w; whether an earlier change was made is not known: %w", err, earlier)
}
