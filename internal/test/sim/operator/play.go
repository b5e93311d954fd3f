// SPDX-License-Identifier: MPL-2.0

// Package operator plays the controllers that may own the cluster that is upgraded, for tests: the one whose
// KubernetesCluster is driven by annotations, and the one whose TalosControlPlane says what is to run. Both act on
// objects, in memory or in a real API server, and upgrade simulated machines as a person with talosctl does, so
// that the history distinguishes their work from ours. [Habits] are what such controllers get wrong.
//
// A player reads its object at every pass. Between two passes machines continue by themselves, so that a hold, or a
// player that ends, never leaves one half installed.
//
// vitistack.go and declarative.go are the two, machines.go and kubernetes.go how they upgrade, memory.go and
// live.go where their objects are.
package operator

import (
	"context"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// PlayVitistack plays the operator of the KubernetesCluster that the options name, until stop is called or ctx
// ends. stop waits for the end; it must be called before the world is stopped.
func PlayVitistack(ctx context.Context, options Options) (stop func()) {
	made := newVitistack(options.withDefaults())

	return play(ctx, made.options, made.pass)
}

// PlayDeclarative plays the operator of the TalosControlPlane that the options name, as [PlayVitistack] does.
func PlayDeclarative(ctx context.Context, options Options) (stop func()) {
	made := newDeclarative(options.withDefaults())

	return play(ctx, made.options, made.pass)
}

// play makes a pass at once, and then one after each pause. What a pass could not do, because the API did not
// answer, is left to the next one.
func play(ctx context.Context, options Options, pass func(context.Context)) (stop func()) {
	ctx, end := context.WithCancel(ctx)

	var work sync.WaitGroup

	work.Go(func() {
		for ctx.Err() == nil {
			pass(ctx)

			if options.Clock.Sleep(ctx, options.Every) != nil {
				return
			}
		}
	})

	return func() {
		end()
		work.Wait()
	}
}

// Options say what a player acts on.
type Options struct {
	// World holds the machines.
	World *model.World
	// Clock is the world's if nil. All durations are simulated ones.
	Clock model.Clock
	// Objects is the API with the object: that of the upgraded cluster or of another one.
	Objects Objects
	// Namespace and Name are those of the KubernetesCluster or the
	// TalosControlPlane.
	Namespace, Name string
	// Every is the time between two passes; 5 s if zero.
	Every time.Duration
	// Patience is how long a machine or a component may take; 10 min if zero.
	Patience time.Duration
	// Newest are the newest versions, without "v", that the operator offers as available; it does not offer an
	// empty one.
	Newest Versions
	// Sync brings what the control plane with the name renders into the cluster, as the last step of an upgrade of
	// Kubernetes; see [LiveSync]. If it is nil, every machine is set to run the new kube-proxy.
	Sync func(ctx context.Context, controlPlane string) error
	// Habits are the bad habits of the operator.
	Habits Habits
}

// Versions is one version of each half, without "v".
type Versions struct {
	Talos, Kubernetes string
}

// Habits are what an operator does besides what it should. The zero value is the operator as it is: after a failure
// it starts over for as long as the target is set.
type Habits struct {
	// WithV writes versions with "v".
	WithV bool
	// StaysFailed makes it wait after a failure until the target was removed.
	StaysFailed bool
	// StaleCompleted leaves the status of an earlier upgrade as it is while it works on a new one.
	StaleCompleted bool
	// Lies makes it report at once that it is done, and touch no machine.
	Lies bool
	// Deaf makes it never react to a target.
	Deaf bool
	// Stalls makes it report that it is at work, and do nothing more.
	Stalls bool
	// FailOn names a node at which it fails before it touches it.
	FailOn string
	// FailTimes is how often it fails there; always if zero.
	FailTimes int
	// Forgetful leaves the target in place when it is done.
	Forgetful bool
	// Fights makes it write status and message of both halves at every pass in which it is held.
	Fights bool
	// IgnoresHold makes it act whoever holds it.
	IgnoresHold bool
	// Undoes makes it take machines to the version in its Secret whenever nobody asks for anything else.
	Undoes bool
	// LeavesInProgress makes it leave its status as it is if the target is removed in the middle of an upgrade.
	LeavesInProgress bool
	// KeepsWorkers keeps a change of the control plane's object from the objects of its workers (declarative).
	KeepsWorkers bool
}

const (
	defaultEvery    = 5 * time.Second
	defaultPatience = 10 * time.Minute
)

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = o.World.Clock()
	}

	if o.Every <= 0 {
		o.Every = defaultEvery
	}

	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}

	return o
}

// Objects is what a player and the seeds need of an API: [Memory] or [Live].
// Errors wrap the sentinels of package cluster.
type Objects interface {
	// Get returns the object as decoded JSON; ErrNotFound if there is none.
	Get(ctx context.Context, of cluster.Reference) (map[string]any, error)
	// List returns the objects of a kind in a namespace, by name; ErrNotFound if the kind is not served.
	List(ctx context.Context, apiVersion, kind, namespace string) ([]map[string]any, error)
	// Patch sends a JSON merge patch to the object or to a part of it: "status".
	Patch(ctx context.Context, of cluster.Reference, part string, patch map[string]any) error
	// Create creates an object, with its status if it has one.
	Create(ctx context.Context, object map[string]any) error
	// SecretOf returns the one Secret of the namespace with the label.
	SecretOf(ctx context.Context, namespace, label, value string) (cluster.Secret, error)
	// WriteSecret sets keys of a Secret.
	WriteSecret(ctx context.Context, namespace, name string, data map[string]string) error
	// CreateSecret creates a Secret of type Opaque.
	CreateSecret(ctx context.Context, secret cluster.Secret, labels map[string]string) error
}

// byPlayer and byClient are who made a change, as in the history.
const (
	byPlayer = "other"
	byClient = "client"
)

// referenceOf returns the reference to an object.
func referenceOf(object map[string]any) cluster.Reference {
	return cluster.Reference{
		APIVersion: text(object, "apiVersion"), Kind: text(object, "kind"),
		Namespace: text(object, keyMetadata, "namespace"), Name: text(object, keyMetadata, keyName),
	}
}
