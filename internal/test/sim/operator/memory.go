// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
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

// What follows is called with the lock held.

// read is a copy of an object.
func (m *Memory) read(of cluster.Reference) (map[string]any, error) {
	if _, served := m.kinds[kindKey{of.APIVersion, of.Kind}]; !served {
		return nil, fmt.Errorf("unable to read %s: %w: the kind %s of %s is not served", of, cluster.ErrNotFound, of.Kind, of.APIVersion)
	}

	object, found := m.objects[of]
	if !found {
		return nil, fmt.Errorf("unable to read %s: %w", of, cluster.ErrNotFound)
	}

	return copyOf(object)
}

// patch sends a JSON merge patch the way the API server takes it: the object and
// its status are each changed by themselves, and what changes nothing is no write.
func (m *Memory) patch(of cluster.Reference, part string, patch map[string]any, by string) error {
	what := "unable to patch " + of.String()
	kind, served := m.kinds[kindKey{of.APIVersion, of.Kind}]
	object, found := m.objects[of]

	switch {
	case !served:
		return fmt.Errorf("%s: %w: the kind %s of %s is not served", what, cluster.ErrNotFound, of.Kind, of.APIVersion)
	case part != "" && (part != partStatus || !kind.Status):
		return fmt.Errorf("%s: %w: the kind has no %s that is changed by itself", what, cluster.ErrRefused, part)
	case !found:
		return fmt.Errorf("%s: %w", what, cluster.ErrNotFound)
	}

	if asked := text(patch, keyMetadata, keyResourceVersion); asked != "" && asked != text(object, keyMetadata, keyResourceVersion) {
		return fmt.Errorf("%s: %w", what, cluster.ErrConflict)
	}

	patch, err := copyOf(patch)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	wanted := merged(object, kind.effective(part, patch))
	wanted[keyMetadata] = merged(section(wanted, keyMetadata), map[string]any{keyResourceVersion: text(object, keyMetadata, keyResourceVersion)})

	if reflect.DeepEqual(object, wanted) {
		return nil
	}

	if err := kind.check(object, wanted); err != nil {
		return fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	metadata := section(wanted, keyMetadata)
	metadata[keyResourceVersion] = m.next()

	if generation, _ := metadata[keyGeneration].(int64); !reflect.DeepEqual(object[keySpec], wanted[keySpec]) {
		metadata[keyGeneration] = generation + 1
	}

	m.objects[of] = wanted
	m.record(of, object, wanted, by)

	return nil
}

// effective is what the API server takes of a patch.
func (k Kind) effective(part string, patch map[string]any) map[string]any {
	switch {
	case part == partStatus:
		return map[string]any{partStatus: patch[partStatus]}
	case k.Status:
		patch = maps.Clone(patch)
		delete(patch, partStatus)
	}

	return patch
}

// check is what the API server wants of an object before it stores it.
func (k Kind) check(old, wanted map[string]any) error {
	for _, field := range slices.Sorted(maps.Keys(section(wanted, partStatus))) {
		if len(k.Fields) > 0 && !slices.Contains(k.Fields, field) {
			return fmt.Errorf("unknown field \"status.%s\"", field)
		}
	}

	if k.Check == nil {
		return nil
	}

	return k.Check(old, wanted)
}

// put stores a new object.
func (m *Memory) put(of cluster.Reference, object map[string]any, by string) error {
	kind, served := m.kinds[kindKey{of.APIVersion, of.Kind}]
	_, found := m.objects[of]

	switch {
	case !served:
		return fmt.Errorf("unable to create %s: %w: the kind is not served", of, cluster.ErrNotFound)
	case found:
		return fmt.Errorf("unable to create %s: %w: it exists already", of, cluster.ErrConflict)
	}

	stored, err := copyOf(object)
	if err != nil {
		return fmt.Errorf("unable to create %s: %w: %w", of, cluster.ErrRefused, err)
	}

	if err := kind.check(nil, stored); err != nil {
		return fmt.Errorf("unable to create %s: %w: %w", of, cluster.ErrRefused, err)
	}

	metadata := section(stored, keyMetadata)
	metadata["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", m.version+1)
	metadata["creationTimestamp"] = m.now().Format(time.RFC3339)
	metadata[keyGeneration] = int64(1)
	metadata[keyResourceVersion] = m.next()

	m.objects[of] = stored
	m.record(of, nil, stored, by)

	return nil
}

const (
	verbGet    = "get"
	verbList   = "list"
	verbPatch  = "patch"
	verbCreate = "create"

	secretKind = "Secret"
)

// Object implements [cluster.ObjectAccess].
func (m *Memory) Object(ctx context.Context, of cluster.Reference) (object map[string]any, err error) {
	err = m.through(ctx, Operation{Verb: verbGet, Of: of, By: byClient}, func() error {
		object, err = m.read(of)

		return err
	})

	return object, err
}

// Objects implements [cluster.Objects].
func (m *Memory) Objects(ctx context.Context, query cluster.ObjectQuery) (found []map[string]any, err error) {
	of := cluster.Reference{APIVersion: query.APIVersion, Kind: query.Kind, Namespace: query.Namespace, Name: query.Name}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byClient}, func() error {
		found, err = m.list(query)

		return err
	})

	return found, err
}

// PatchObject implements [cluster.ObjectAccess].
func (m *Memory) PatchObject(
	ctx context.Context, of cluster.Reference, part string, patch map[string]any,
) (object map[string]any, err error) {
	err = m.through(ctx, Operation{Verb: verbPatch, Of: of, Part: part, By: byClient}, func() error {
		if err := m.patch(of, part, patch, byClient); err != nil {
			return err
		}

		object, err = m.read(of)

		return err
	})
	if err != nil {
		return nil, err
	}

	return object, nil
}

// HasPart implements [cluster.ObjectAccess].
func (m *Memory) HasPart(ctx context.Context, of cluster.Reference, part string) (has bool, err error) {
	err = m.through(ctx, Operation{Verb: verbGet, Of: of, Part: part, By: byClient}, func() error {
		kind, served := m.kinds[kindKey{of.APIVersion, of.Kind}]
		if !served {
			return fmt.Errorf("unable to look up %s %s: %w: no such kind is served", of.APIVersion, of.Kind, cluster.ErrNotFound)
		}

		has = part == partStatus && kind.Status

		return nil
	})

	return has, err
}

// Secret implements [cluster.SecretAccess].
func (m *Memory) Secret(ctx context.Context, namespace, name string) (secret cluster.Secret, err error) {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace, Name: name}

	err = m.through(ctx, Operation{Verb: verbGet, Of: of, By: byClient}, func() error {
		standing, found := m.secrets[secretKey{namespace, name}]
		if !found {
			return fmt.Errorf("unable to read %s: %w", of, cluster.ErrNotFound)
		}

		secret = standing.copy()

		return nil
	})

	return secret, err
}

// Secrets implements [cluster.SecretAccess].
func (m *Memory) Secrets(ctx context.Context, namespace, selector string) (found []cluster.Secret, err error) {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byClient}, func() error {
		chosen, err := labels.Parse(selector)
		if err != nil {
			return fmt.Errorf("unable to list Secrets: %w: %w", cluster.ErrRefused, err)
		}

		for _, name := range m.sortedSecrets(namespace) {
			if standing := m.secrets[secretKey{namespace, name}]; chosen.Matches(labels.Set(standing.labels)) {
				found = append(found, standing.copy())
			}
		}

		return nil
	})

	return found, err
}

// PatchSecret implements [cluster.SecretAccess].
func (m *Memory) PatchSecret(ctx context.Context, read cluster.Secret, data map[string][]byte) error {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: read.Namespace, Name: read.Name}

	return m.through(ctx, Operation{Verb: verbPatch, Of: of, By: byClient}, func() error {
		standing, found := m.secrets[secretKey{read.Namespace, read.Name}]

		switch {
		case !found:
			return fmt.Errorf("unable to write %s: %w", of, cluster.ErrNotFound)
		case read.ResourceVersion != "" && read.ResourceVersion != standing.ResourceVersion:
			return fmt.Errorf("unable to write %s: %w", of, cluster.ErrConflict)
		}

		m.setSecret(standing, data)

		return nil
	})
}

func (s *storedSecret) copy() cluster.Secret {
	copied := s.Secret
	copied.Data = make(map[string][]byte, len(s.Data))

	for key, value := range s.Data {
		copied.Data[key] = slices.Clone(value)
	}

	return copied
}

// setSecret sets keys of a Secret; with the lock held.
func (m *Memory) setSecret(standing *storedSecret, data map[string][]byte) {
	changed := false

	for key, value := range data {
		if before, has := standing.Data[key]; !has || !slices.Equal(before, value) {
			standing.Data[key], changed = slices.Clone(value), true
		}
	}

	if changed {
		standing.ResourceVersion = m.next()
	}
}

// list is what a query finds; with the lock held.
func (m *Memory) list(query cluster.ObjectQuery) ([]map[string]any, error) {
	what := fmt.Sprintf("unable to list %s %s", query.APIVersion, query.Kind)

	if _, served := m.kinds[kindKey{query.APIVersion, query.Kind}]; !served {
		return nil, fmt.Errorf("%s: %w: no such kind is served", what, cluster.ErrNotFound)
	}

	chosen, err := labels.Parse(query.Selector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	var found []map[string]any

	for _, of := range slices.SortedFunc(maps.Keys(m.objects), byNamespaceAndName) {
		switch {
		case of.APIVersion != query.APIVersion || of.Kind != query.Kind:
		case query.Namespace != "" && of.Namespace != query.Namespace:
		case query.Name != "" && of.Name != query.Name:
		case !chosen.Matches(labels.Set(stringsOf(section(m.objects[of], keyMetadata, keyLabels)))):
		default:
			object, err := copyOf(m.objects[of])
			if err != nil {
				return nil, err
			}

			found = append(found, object)
		}
	}

	return found, nil
}

func byNamespaceAndName(a, b cluster.Reference) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Get implements [Objects].
func (m *Memory) Get(ctx context.Context, of cluster.Reference) (object map[string]any, err error) {
	err = m.through(ctx, Operation{Verb: verbGet, Of: of, By: byPlayer}, func() error {
		object, err = m.read(of)

		return err
	})

	return object, err
}

// List implements [Objects].
func (m *Memory) List(ctx context.Context, apiVersion, kind, namespace string) (found []map[string]any, err error) {
	of := cluster.Reference{APIVersion: apiVersion, Kind: kind, Namespace: namespace}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byPlayer}, func() error {
		found, err = m.list(cluster.ObjectQuery{APIVersion: apiVersion, Kind: kind, Namespace: namespace})

		return err
	})

	return found, err
}

// Patch implements [Objects].
func (m *Memory) Patch(ctx context.Context, of cluster.Reference, part string, patch map[string]any) error {
	return m.through(ctx, Operation{Verb: verbPatch, Of: of, Part: part, By: byPlayer}, func() error {
		return m.patch(of, part, patch, byPlayer)
	})
}

// Create implements [Objects].
func (m *Memory) Create(ctx context.Context, object map[string]any) error {
	of := referenceOf(object)

	return m.through(ctx, Operation{Verb: verbCreate, Of: of, By: byPlayer}, func() error {
		return m.put(of, object, byPlayer)
	})
}

// SecretOf implements [Objects].
func (m *Memory) SecretOf(ctx context.Context, namespace, label, value string) (secret cluster.Secret, err error) {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byPlayer}, func() error {
		for _, name := range m.sortedSecrets(namespace) {
			if standing := m.secrets[secretKey{namespace, name}]; standing.labels[label] == value {
				secret = standing.copy()

				return nil
			}
		}

		return noSecret(namespace, label, value)
	})

	return secret, err
}

func noSecret(namespace, label, value string) error {
	return fmt.Errorf("unable to find a Secret in %s with the label %s=%s: %w", namespace, label, value, cluster.ErrNotFound)
}

// WriteSecret implements [Objects].
func (m *Memory) WriteSecret(ctx context.Context, namespace, name string, data map[string]string) error {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace, Name: name}

	return m.through(ctx, Operation{Verb: verbPatch, Of: of, By: byPlayer}, func() error {
		standing, found := m.secrets[secretKey{namespace, name}]
		if !found {
			return fmt.Errorf("unable to write %s: %w", of, cluster.ErrNotFound)
		}

		written := make(map[string][]byte, len(data))
		for key, value := range data {
			written[key] = []byte(value)
		}

		m.setSecret(standing, written)

		return nil
	})
}

// CreateSecret implements [Objects].
func (m *Memory) CreateSecret(ctx context.Context, secret cluster.Secret, labels map[string]string) error {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: secret.Namespace, Name: secret.Name}

	return m.through(ctx, Operation{Verb: verbCreate, Of: of, By: byPlayer}, func() error {
		at := secretKey{secret.Namespace, secret.Name}
		if m.secrets[at] != nil {
			return fmt.Errorf("unable to create %s: %w: it exists already", of, cluster.ErrConflict)
		}

		stored := &storedSecret{Secret: secret, labels: labels}
		stored.Secret = stored.copy()
		stored.ResourceVersion = m.next()
		m.secrets[at] = stored

		return nil
	})
}

// record adds to the history what changed of the annotations of the protocol and
// of the status.
func (m *Memory) record(of cluster.Reference, old, wanted map[string]any, by string) {
	name := of.Kind + "/" + of.Namespace + "/" + of.Name

	before, after := annotationsOf(old), annotationsOf(wanted)
	for _, key := range union(before, after) {
		short, ours := strings.CutPrefix(key, prefix)
		if ours && before[key] != after[key] {
			m.world.Record("", history.KindAnnotation, map[string]string{"object": name, "key": short, "value": after[key], "by": by})
		}
	}

	for _, field := range []string{"phase", keyState, keyMessage} {
		if value := text(wanted, partStatus, field); value != text(old, partStatus, field) {
			m.world.Record("", history.KindStatus, map[string]string{"object": name, "field": field, "value": value, "by": by})
		}
	}

	hadConditions, hasConditions := conditionsOf(old), conditionsOf(wanted)
	for _, kind := range union(hadConditions, hasConditions) {
		if now := hasConditions[kind]; now != hadConditions[kind] {
			m.world.Record("", history.KindStatus, map[string]string{
				"object": name, "condition": kind, "status": now.status, "reason": now.reason, keyMessage: now.message, "by": by,
			})
		}
	}
}

// told is what the history tells of a condition.
type told struct{ status, reason, message string }

func conditionsOf(object map[string]any) map[string]told {
	listed, _ := section(object, partStatus)["conditions"].([]any)
	conditions := make(map[string]told, len(listed))

	for _, entry := range listed {
		fields, _ := entry.(map[string]any)
		conditions[text(fields, "type")] = told{text(fields, "status"), text(fields, "reason"), text(fields, keyMessage)}
	}

	return conditions
}

// union are the keys of both maps, in order.
func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)

	return slices.Compact(keys)
}

// The fields that are read or written in several places.
const (
	keyMetadata        = "metadata"
	keyAnnotations     = "annotations"
	keyLabels          = "labels"
	keyResourceVersion = "resourceVersion"
	keyGeneration      = "generation"
	keyName            = "name"
	keySpec            = "spec"
	keyState           = "state"
	keyVersion         = "version"
	keyKubeVersion     = "kubeVersion"
	keyMessage         = "message"
)

// prefix is what the keys of the annotation protocol begin with.
const prefix = "upgrade.vitistack.io/"

// section is an object within an object; nil where there is none.
func section(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}

	return object
}

// text is a string within an object; empty where there is none.
func text(object map[string]any, path ...string) string {
	last := len(path) - 1
	found, _ := section(object, path[:last]...)[path[last]].(string)

	return found
}

func annotationsOf(object map[string]any) map[string]string {
	return stringsOf(section(object, keyMetadata, keyAnnotations))
}

func stringsOf(given map[string]any) map[string]string {
	if given == nil {
		return nil
	}

	all := make(map[string]string, len(given))
	for key, value := range given {
		all[key], _ = value.(string)
	}

	return all
}

// copyOf is an object as it would come over the wire: whole numbers are int64.
func copyOf(object map[string]any) (map[string]any, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}

	var copied map[string]any
	if err := utiljson.Unmarshal(encoded, &copied); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}

	return copied, nil
}

// merged is what a JSON merge patch makes of an object, which stays as it is.
func merged(object, patch map[string]any) map[string]any {
	result := maps.Clone(object)
	if result == nil {
		result = map[string]any{}
	}

	for key, value := range patch {
		switch wanted := value.(type) {
		case nil:
			delete(result, key)
		case map[string]any:
			standing, _ := result[key].(map[string]any)
			result[key] = merged(standing, wanted)
		default:
			result[key] = wanted
		}
	}

	return result
}

// plain is a version without "v".
func plain(version string) string { return strings.TrimPrefix(version, "v") }

// partStatus is the part of an object that is changed by itself.
const partStatus = "status"

// Kind is how [Memory] serves a kind of objects.
type Kind struct {
	APIVersion, Kind string
	// Status tells that the status is a part that is changed by itself.
	Status bool
	// Fields are the fields that a status may have; any where empty.
	Fields []string
	// Check looks at an object before it is stored; old is nil where there was
	// none.
	Check func(old, wanted map[string]any) error
}

// operatorKinds are ConfigMaps and what both operators bring.
func operatorKinds() []Kind {
	return []Kind{
		{APIVersion: "v1", Kind: "ConfigMap"},
		{
			APIVersion: VitistackAPIVersion, Kind: VitistackKind, Status: true,
			Fields: []string{"phase", "message", "conditions"}, Check: checkConditions,
		},
		{APIVersion: DeclarativeAPIVersion, Kind: ControlPlaneKind, Status: true, Check: checkDeclarative},
		{APIVersion: DeclarativeAPIVersion, Kind: WorkerKind, Status: true, Check: checkDeclarative},
		{APIVersion: DeclarativeAPIVersion, Kind: MachineKind, Status: true, Check: checkDeclarative},
	}
}

// checkConditions wants every condition to be whole.
func checkConditions(_, wanted map[string]any) error {
	conditions, _ := section(wanted, partStatus)["conditions"].([]any)

	for i, condition := range conditions {
		fields, _ := condition.(map[string]any)

		for _, field := range []string{"lastTransitionTime", "message", "reason", "status", "type"} {
			if _, given := fields[field].(string); !given {
				return fmt.Errorf("status.conditions[%d].%s: Required value", i, field)
			}
		}
	}

	return nil
}

// checkDeclarative wants versions with "v", and no way back for kubeVersion.
func checkDeclarative(old, wanted map[string]any) error {
	const pattern = `^v\d+\.\d+\.\d+(-\w+)?$`

	shape := regexp.MustCompile(pattern)

	for _, field := range []string{keyVersion, keyKubeVersion} {
		given, set := section(wanted, "spec")[field]
		if text, _ := given.(string); set && !shape.MatchString(text) {
			return fmt.Errorf("spec.%s: Invalid value: %q: should match '%s'", field, text, pattern)
		}
	}

	before, beforeErr := version.Parse(strings.TrimPrefix(text(old, "spec", keyKubeVersion), "v"))
	after, afterErr := version.Parse(strings.TrimPrefix(text(wanted, "spec", keyKubeVersion), "v"))

	if beforeErr == nil && afterErr == nil && after.Less(before) {
		return errors.New("spec.kubeVersion: Invalid value: kubeVersion cannot be decreased")
	}

	return checkConditions(old, wanted)
}
