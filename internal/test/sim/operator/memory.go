// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Memory is an API in memory: for players through [Objects], and for the client
// that is tested through the ports of package cluster. What either of them does
// to annotations and status goes to the history of the world. It is safe for
// concurrent use.
type Memory struct {
	world  *model.World
	inside bool

	mu      sync.Mutex
	version int
	calls   int
	changes int
	inject  Injector
	kinds   map[kindKey]Kind
	objects map[cluster.Reference]map[string]any
	secrets map[secretKey]*storedSecret
}

var (
	_ Objects              = (*Memory)(nil)
	_ cluster.ObjectAccess = (*Memory)(nil)
	_ cluster.SecretAccess = (*Memory)(nil)
)

type kindKey struct{ apiVersion, kind string }

type secretKey struct{ namespace, name string }

type storedSecret struct {
	cluster.Secret
	labels map[string]string
}

// Operation is one request.
type Operation struct {
	// Verb is get, list, patch or create, and the same of Secrets with the kind of
	// Of being Secret.
	Verb string
	Of   cluster.Reference
	// Part is "status", or empty for the object.
	Part string
	// By is "client", or "other" for a player.
	By string
	// Number counts the requests from 1, Mutation those that change something; it
	// is 0 for a read.
	Number, Mutation int
}

// String names a request the way a person finds it again.
func (o Operation) String() string {
	return fmt.Sprintf("%s %s %s by %s (request %d, mutation %d)", o.Verb, o.Of, o.Part, o.By, o.Number, o.Mutation)
}

// Injector stands between the users and the store: next carries the request out.
// An error instead of it is a request that had no effect, one after it a reply
// that was lost. It is called from several goroutines.
type Injector func(ctx context.Context, operation Operation, next func() error) error

// NewMemory is the API of a management cluster: it answers whatever becomes of
// the machines. It serves ConfigMaps, Secrets and the kinds of both operators.
func NewMemory(world *model.World) *Memory {
	made := &Memory{
		world: world, kinds: map[kindKey]Kind{},
		objects: map[cluster.Reference]map[string]any{}, secrets: map[secretKey]*storedSecret{},
	}

	for _, kind := range operatorKinds() {
		made.Serve(kind)
	}

	return made
}

// NewMemoryInside is the API of the upgraded cluster itself: it answers while one
// of its kube-apiservers serves.
func NewMemoryInside(world *model.World) *Memory {
	made := NewMemory(world)
	made.inside = true

	return made
}

// Serve has the API serve a kind of objects, or serve it in another way.
func (m *Memory) Serve(kind Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.kinds[kindKey{kind.APIVersion, kind.Kind}] = kind
}

// Forget has the API serve a kind no longer; its objects are gone.
func (m *Memory) Forget(apiVersion, kind string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.kinds, kindKey{apiVersion, kind})
	maps.DeleteFunc(m.objects, func(of cluster.Reference, _ map[string]any) bool {
		return of.APIVersion == apiVersion && of.Kind == kind
	})
}

// Inject puts an injector in front of all further requests; nil takes it away.
func (m *Memory) Inject(inject Injector) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.inject = inject
}

// Delete is a person who deletes an object. With finalizers it stays, with the
// time of its deletion.
func (m *Memory) Delete(of cluster.Reference, finalizers ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	object, found := m.objects[of]
	if !found {
		return fmt.Errorf("unable to delete %s: %w", of, cluster.ErrNotFound)
	}

	if len(finalizers) == 0 {
		delete(m.objects, of)

		return nil
	}

	held := make([]any, len(finalizers))
	for i, finalizer := range finalizers {
		held[i] = finalizer
	}

	metadata := section(object, keyMetadata)
	metadata["deletionTimestamp"], metadata["finalizers"] = m.now().Format(time.RFC3339), held
	metadata[keyResourceVersion] = m.next()

	return nil
}

// DeleteSecret is a person who deletes a Secret.
func (m *Memory) DeleteSecret(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.secrets, secretKey{namespace, name})
}

// Annotate is a person who sets annotations, by their whole keys; an empty value
// takes one away.
func (m *Memory) Annotate(ctx context.Context, of cluster.Reference, annotations map[string]string) error {
	changes := map[string]any{}

	for key, value := range annotations {
		changes[key] = value

		if value == "" {
			changes[key] = nil
		}
	}

	return m.Patch(ctx, of, "", map[string]any{"metadata": map[string]any{"annotations": changes}})
}

// Annotations are those of an object, by their whole keys; nil where there is no
// such object.
func (m *Memory) Annotations(of cluster.Reference) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return annotationsOf(m.objects[of])
}

func (m *Memory) now() time.Time { return m.world.Clock().Now().UTC() }

// next is a new resource version; with the lock held.
func (m *Memory) next() string {
	m.version++

	return strconv.Itoa(m.version)
}

// through carries out a request, as the injector has it.
func (m *Memory) through(ctx context.Context, operation Operation, do func() error) error {
	m.mu.Lock()
	m.calls++
	operation.Number = m.calls

	if operation.Verb == verbPatch || operation.Verb == verbCreate {
		m.changes++
		operation.Mutation = m.changes
	}

	inject := m.inject
	m.mu.Unlock()

	next := func() error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("unable to %s %s: %w: %w", operation.Verb, operation.Of, cluster.ErrUnreachable, context.Cause(ctx))
		}

		if m.inside && !m.world.Serving() {
			return fmt.Errorf("unable to %s %s: %w: connect: connection refused", operation.Verb, operation.Of, cluster.ErrUnreachable)
		}

		m.mu.Lock()
		defer m.mu.Unlock()

		return do()
	}

	if inject == nil {
		return next()
	}

	return inject(ctx, operation, next)
}

// sortedSecrets are the names of the Secrets of a namespace, in order; with the
// lock held.
func (m *Memory) sortedSecrets(namespace string) []string {
	var names []string

	for key := range m.secrets {
		if key.namespace == namespace {
			names = append(names, key.name)
		}
	}

	slices.Sort(names)

	return names
}
