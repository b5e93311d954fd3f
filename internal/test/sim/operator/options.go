// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Options say what a player acts on.
type Options struct {
	// World holds the machines.
	World *model.World
	// Clock is the world's when nil. All durations are simulated ones.
	Clock model.Clock
	// Objects is the API in which the object lives: of the upgraded cluster or of
	// another one.
	Objects Objects
	// Namespace and Name are those of the KubernetesCluster or the
	// TalosControlPlane.
	Namespace, Name string
	// Every is the time between two passes; 5 s when zero.
	Every time.Duration
	// Patience is how long a machine or a component may take; 10 min when zero.
	Patience time.Duration
	// Newest are the newest versions, without "v", that the operator offers as
	// available; it offers none that is empty.
	Newest Versions
	// Sync brings what the control plane with the name renders into the cluster,
	// as the last step of an upgrade of Kubernetes; see [LiveSync]. When nil,
	// every machine is told to run the new kube-proxy.
	Sync func(ctx context.Context, controlPlane string) error
	// Habits are bad ones.
	Habits Habits
}

// Versions are one of each half, without "v".
type Versions struct {
	Talos, Kubernetes string
}

// Habits are what an operator does beside what it should. The zero value is the
// operator as it is: after a failure it starts over for as long as the target
// stands.
type Habits struct {
	// WithV writes versions with "v".
	WithV bool
	// StaysFailed has it wait, after a failure, until the target was taken away.
	StaysFailed bool
	// StaleCompleted leaves the status of an earlier upgrade as it is while it
	// works on a new one.
	StaleCompleted bool
	// Lies has it say at once that it is done, and touch no machine.
	Lies bool
	// Deaf has it never react to a target.
	Deaf bool
	// Stalls has it say that it is at work, and do nothing more.
	Stalls bool
	// FailOn names a node at which it fails before it touches it.
	FailOn string
	// FailTimes is how often it fails there; always when zero.
	FailTimes int
	// Forgetful leaves the target when it is done.
	Forgetful bool
	// Fights has it write status and message of both halves at every pass in which
	// it is held.
	Fights bool
	// IgnoresHold has it act whoever holds it.
	IgnoresHold bool
	// Undoes has it take machines to the version that its Secret names whenever
	// nobody asks for anything else.
	Undoes bool
	// LeavesInProgress has it leave its status as it is when the target was taken
	// away in the middle of an upgrade.
	LeavesInProgress bool
	// KeepsWorkers has a change of the control plane's object not reach the objects
	// of its workers (declarative).
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
