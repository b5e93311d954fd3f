// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The keys of the operator's Secret.
const (
	talosVersionKey      = "talos_version"
	kubernetesVersionKey = "kubernetes_version"
	busyKey              = "upgrade_in_progress"
	busyHalfKey          = "upgrade_type"
	busyTargetKey        = "upgrade_target"
	busyStateKey         = "upgrade_state"
)

// maxSecretWait bounds the calls that only serve to report about a run that died, so that they do not hold up a
// release.
const maxSecretWait = 2 * time.Second

// vitistack is the operator of a KubernetesCluster.
type vitistack struct {
	annotated
}

// Report implements [cluster.Operator]. Unless the object is held, it also reads the Secret of the operator, if it
// may: an upgrade that the operator has begun continues whatever happens to the annotations.
func (v *vitistack) Report(ctx context.Context) (cluster.OperatorReport, error) {
	found, err := v.access.Object(ctx, v.of)
	if err != nil {
		return cluster.OperatorReport{}, err
	}

	report := reported(v.of, found)
	if report.Hold != "" {
		return report, nil
	}

	if secret, err := beside(ctx, v.access, v.of, found); err == nil {
		v.remembered(secret, &report)
		abandoned(secret, &report)
	}

	return report, nil
}

// abandoned resets the status of a run of ours that died and whose hold somebody has removed since: the operator is
// not asked for anything, and its Secret, by which it acts, has no upgrade.
func abandoned(secret cluster.Secret, report *cluster.OperatorReport) {
	if report.Updated.IsZero() {
		// No run of ours has ever reported anything here.
		return
	}

	if which, _ := underway(secret, func(product version.Product) string { return report.Of(product).Current }); which != "" {
		return
	}

	for _, half := range []*cluster.OperatorProduct{&report.Talos, &report.Kubernetes} {
		if half.Status.Busy() && half.Target == "" {
			half.Status = protocol.StatusIdle
		}
	}
}

// remembered adds to a report what the Secret says. The operator writes its annotations first and its Secret
// afterwards, and does not change the Secret if an upgrade fails: a product that has ended according to the
// annotations has ended. If the status is completed while the operator is upgrading to the target in the
// annotations, the status is from an earlier upgrade.
func (v *vitistack) remembered(secret cluster.Secret, report *cluster.OperatorReport) {
	which, target := underway(secret, func(product version.Product) string { return report.Of(product).Current })

	var half *cluster.OperatorProduct

	switch which {
	case version.Talos:
		half = &report.Talos
	case version.Kubernetes:
		half = &report.Kubernetes
	default:
		return
	}

	switch {
	case half.Status == protocol.StatusFailed, half.Status == protocol.StatusCompleted && half.Target != target:
		return
	case half.Status == protocol.StatusCompleted:
		half.Status = protocol.StatusInProgress

		return
	}

	if !half.Status.Busy() {
		half.Status = protocol.StatusInProgress
		half.Message = fmt.Sprintf("%s of %s is true", busyKey, secretName(secret))
	}

	// It goes on with what it has begun, even if the annotation is removed.
	forget := fmt.Sprintf("remove %s from %s, and set %s to false", busyStateKey, secretName(secret), busyKey)

	switch {
	case half.Target != "" && half.Target != target:
	case which == version.Talos:
		half.Target, half.Undo = target, undo(v.of, protocol.KeyReset+"=true")
	case half.Target == "":
		half.Target, half.Undo = target, "By hand: "+forget
	default:
		half.Undo += ", then " + forget
	}
}

// Release implements [cluster.Operator].
func (v *vitistack) Release(ctx context.Context, run string) error {
	return v.release(ctx, run, func(found object, product version.Product) bool {
		ctx, cancel := context.WithTimeout(ctx, maxSecretWait)
		defer cancel()

		secret, err := beside(ctx, v.access, v.of, found)
		if err != nil {
			// Without the Secret nothing is known, and the operator was held.
			return false
		}

		which, _ := underway(secret, func(product version.Product) string {
			current, _ := found.annotation(protocol.Key(product, protocol.FieldCurrent))

			return current
		})

		return which == product
	})
}

// Settle implements [cluster.Operator]. The operator makes machine configurations for the versions in its Secret.
func (v *vitistack) Settle(ctx context.Context, talos, kubernetes version.Version) error {
	known := map[string]version.Version{}

	for key, what := range map[string]version.Version{talosVersionKey: talos, kubernetesVersionKey: kubernetes} {
		if !what.IsZero() {
			known[key] = what
		}
	}

	if len(known) == 0 {
		return nil
	}

	found, err := v.access.Object(ctx, v.of)
	if err == nil {
		err = v.settle(ctx, found, known)
	}

	if err != nil {
		return fmt.Errorf("unable to bring %s in the Secret of %s up to date: %w",
			strings.Join(slices.Sorted(maps.Keys(known)), " and "), v.of, err)
	}

	return nil
}

func (v *vitistack) settle(ctx context.Context, found object, known map[string]version.Version) error {
	var last error

	for range attempts {
		secret, err := beside(ctx, v.access, v.of, found)
		if err != nil {
			return unseen(err, last)
		}

		changes := outdated(secret, known)
		if cluster.IsRun(held(found)) && string(secret.Data[busyKey]) == "true" && reached(secret, known) {
			changes[busyKey] = []byte("false")
		}

		if len(changes) == 0 {
			return nil
		}

		last = v.access.PatchSecret(ctx, secret, changes)
		if !repeatable(last) {
			return last
		}
	}

	return fmt.Errorf("not done in %d attempts: %w", attempts, last)
}

// outdated returns the keys of the Secret with other versions, and the new versions in the spelling of the old
// ones.
func outdated(secret cluster.Secret, known map[string]version.Version) map[string][]byte {
	changes := map[string][]byte{}

	for key, what := range known {
		standing := strings.TrimSpace(string(secret.Data[key]))

		switch {
		case says(standing, what):
		case strings.HasPrefix(standing, "v"):
			changes[key] = []byte(what.Tag())
		default:
			changes[key] = []byte(what.String())
		}
	}

	return changes
}

// Ask implements [cluster.Operator]. ErrConflict means that another target is set.
func (v *vitistack) Ask(ctx context.Context, product version.Product, to version.Version) error {
	if to.IsZero() {
		return unknown(v.of, product)
	}

	key := protocol.Key(product, protocol.FieldTarget)

	return rewrite(ctx, v.access, v.of, nil, func(found object) (map[string]any, error) {
		standing, _ := found.annotation(key)

		switch {
		case standing == "":
			return annotate(key, to.String()), nil
		case says(standing, to):
			return nil, nil
		default:
			return nil, fmt.Errorf("unable to ask %s for %s %s: %w: its annotation %s asks for %q",
				v.of, product.Name(), to, cluster.ErrConflict, key, shortened(standing))
		}
	})
}

// Withdraw implements [cluster.Operator].
func (v *vitistack) Withdraw(ctx context.Context, product version.Product, to version.Version) error {
	key := protocol.Key(product, protocol.FieldTarget)

	err := rewrite(ctx, v.access, v.of, nil, func(found object) (map[string]any, error) {
		if standing, _ := found.annotation(key); !says(standing, to) {
			return nil, nil
		}

		return annotate(key, nil), nil
	})
	if errors.Is(err, cluster.ErrNotFound) {
		// Without the object nothing is asked for.
		return nil
	}

	return err
}

func unknown(of cluster.Reference, product version.Product) error {
	return fmt.Errorf("unable to ask %s for another version of %s: %w: which one is not known", of, product.Name(), cluster.ErrRefused)
}
