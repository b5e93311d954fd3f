// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// What the operator writes.
const (
	phaseReady  = "Ready"
	phaseFailed = "UpgradeFailed"

	statusIdle       = "idle"
	statusInProgress = "in-progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
	statusBlocked    = "blocked"

	keyHold        = prefix + "do-not-reconcile"
	keyFailedNodes = prefix + "failed-nodes"

	secretTalos        = "talos_version"
	secretKubernetes   = "kubernetes_version"
	secretInstallImage = "install_image"
	secretBusy         = "upgrade_in_progress"
	secretType         = "upgrade_type"
	secretTarget       = "upgrade_target"
	secretState        = "upgrade_state"
)

// vitistack is the operator of one KubernetesCluster. Between passes it remembers
// what it works on; the rest it reads anew.
type vitistack struct {
	options Options
	of      cluster.Reference
	hands   *hands
	job     *job
	// gaveUp are the targets that it does not try again, by half.
	gaveUp map[version.Product]string
	// unsaid is what it could not write yet.
	unsaid report
	// secret is the Secret as of this pass; without a name where there is none.
	secret cluster.Secret
}

// job is an upgrade of one half that is under way.
type job struct {
	half   version.Product
	target version.Version
	roll   *roll // of Kubernetes only
	undo   bool  // nobody asked for it
}

func newVitistack(options Options) *vitistack {
	return &vitistack{
		options: options,
		of: cluster.Reference{
			APIVersion: VitistackAPIVersion, Kind: VitistackKind, Namespace: options.Namespace, Name: options.Name,
		},
		hands:  &hands{options: options},
		gaveUp: map[version.Product]string{},
		unsaid: newReport(),
	}
}

// halves are in the order in which they are looked at.
func halves() []version.Product { return []version.Product{version.Talos, version.Kubernetes} }

// key is an annotation of a half.
func key(product version.Product, name string) string { return prefix + string(product) + "-" + name }

// pass looks at the object once, and takes the next step.
func (v *vitistack) pass(ctx context.Context) {
	object, err := v.options.Objects.Get(ctx, v.of)
	if err != nil || text(object, keyMetadata, "deletionTimestamp") != "" {
		return
	}

	notes := annotationsOf(object)

	if notes[keyHold] != "" && !v.options.Habits.IgnoresHold {
		// Whoever holds it speaks for the cluster now.
		v.unsaid = newReport()

		// What was to be undone is judged anew, by what the Secret says then.
		if v.job != nil && v.job.undo {
			v.job = nil
		}

		if v.options.Habits.Fights {
			v.fight(ctx)
		}

		return
	}

	if !v.write(ctx) {
		return
	}

	clusterID := text(object, keySpec, "data", "clusterId")

	v.secret, err = v.options.Objects.SecretOf(ctx, v.of.Namespace, clusterLabel, clusterID)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return
	}

	v.believe(notes)
	v.act(ctx, notes)
	v.write(ctx)
}

// fight is what it writes while it is held.
func (v *vitistack) fight(ctx context.Context) {
	said := newReport()

	for _, product := range halves() {
		said.annotations[key(product, "status")] = statusIdle
		said.annotations[key(product, "message")] = "Waiting for an upgrade to be requested"
	}

	v.unsaid = said
	v.write(ctx)
	v.unsaid = newReport()
}

// believe says what the operator takes the cluster to run, which is what it wrote
// into the Secret, and what it has to offer.
func (v *vitistack) believe(notes map[string]string) {
	for _, product := range halves() {
		current := v.current(product)
		if current.IsZero() {
			continue
		}

		if plain(notes[key(product, "current")]) != current.String() {
			v.say(product, "current", v.spell(current))
		}

		if notes[key(product, "status")] == "" {
			v.say(product, "status", statusIdle)
		}

		v.offer(product, current, notes)
	}
}

// offer announces a newer version to whoever asks for nothing.
func (v *vitistack) offer(product version.Product, current version.Version, notes map[string]string) {
	given := v.options.Newest.Talos
	if product == version.Kubernetes {
		given = v.options.Newest.Kubernetes
	}

	newest, err := version.Parse(given)
	if err != nil || v.job != nil || notes[key(product, "target")] != "" {
		return
	}

	suits := product == version.Talos || supports(v.current(version.Talos), newest)

	switch standing := notes[key(product, "available")]; {
	case current.Less(newest) && suits:
		v.say(product, "available", v.spell(newest))

		if status := notes[key(product, "status")]; status == "" || status == statusIdle {
			v.say(product, "message", "Upgrade available: "+v.spell(current)+" → "+v.spell(newest))
		}
	case standing != "":
		v.unsay(product, "available")
	}
}

// current is what the operator takes the cluster to run; zero without a Secret.
func (v *vitistack) current(product version.Product) version.Version {
	field := secretTalos
	if product == version.Kubernetes {
		field = secretKubernetes
	}

	parsed, err := version.Parse(strings.TrimSpace(string(v.secret.Data[field])))
	if err != nil {
		return version.Version{}
	}

	return parsed
}

// spell is a version as this operator writes it.
func (v *vitistack) spell(given version.Version) string {
	if v.options.Habits.WithV {
		return given.Tag()
	}

	return given.String()
}
