// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Memory is an API in memory that serves the kinds of both operators: for players through [Objects], and for the
// client under test through the shipped adapter. It is safe for concurrent use.
type Memory struct {
	*apiserver.Server

	client, direct *kubeapi.Client
	player         *Live

	mu      sync.Mutex
	calls   int
	changes int
	inject  Injector
}

var (
	_ Objects              = (*Memory)(nil)
	_ cluster.ObjectAccess = (*Memory)(nil)
	_ cluster.SecretAccess = (*Memory)(nil)
)

// Operation is one request.
type Operation struct {
	// Verb is get, list, patch or create. For Secrets it is the same, with Secret as the kind of Of.
	Verb string
	Of   cluster.Reference
	// Part is "status"; empty for the object.
	Part string
	// By is "client", or "other" for a player.
	By string
	// Number counts the requests from 1, Mutation those that change something; Mutation is 0 for a read.
	Number, Mutation int
}

// String returns a name by which a person can find the request.
func (o Operation) String() string {
	return fmt.Sprintf("%s %s %s by %s (request %d, mutation %d)", o.Verb, o.Of, o.Part, o.By, o.Number, o.Mutation)
}

// Injector stands between the users and the API: next carries out the request. An error instead of it is a request
// that had no effect, an error after it a reply that was lost. It is called from several goroutines.
type Injector func(ctx context.Context, operation Operation, next func() error) error

// NewMemory returns the API of a management cluster: it answers whatever happens to the machines.
func NewMemory(world *model.World) (*Memory, error) {
	server, err := apiserver.NewBeside(world)
	if err != nil {
		return nil, err
	}

	return NewMemoryIn(server)
}

// NewMemoryIn makes an API serve the kinds as well, such as that of the upgraded cluster itself.
func NewMemoryIn(server *apiserver.Server) (*Memory, error) {
	for _, kind := range operatorKinds() {
		if err := server.Serve(kind); err != nil {
			return nil, err
		}
	}

	client, clientErr := kubeapi.New(apiserver.Kubeconfig(), "", kubeapi.Options{Transport: server.Transport("")})
	direct, directErr := kubeapi.New(apiserver.Kubeconfig(), "", kubeapi.Options{Transport: server.Direct()})
	player, playerErr := NewLive(&rest.Config{Host: "http://memory", QPS: -1, Transport: server.TransportOfPerson()})

	return &Memory{Server: server, client: client, direct: direct, player: player}, errors.Join(clientErr, directErr, playerErr)
}

// Inject puts an injector in front of all further requests; nil removes it.
func (m *Memory) Inject(inject Injector) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.inject = inject
}

// Annotate plays a person who sets annotations, by their full keys; an empty value removes one.
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

// Annotations returns those of an object, by their full keys; nil if there is no such object.
func (m *Memory) Annotations(of cluster.Reference) map[string]string {
	object, err := m.direct.Object(context.Background(), of)
	if err != nil {
		return nil
	}

	return annotationsOf(object)
}

// through carries out a request through the injector.
func through[T any](ctx context.Context, m *Memory, operation Operation, do func() (T, error)) (answer T, err error) {
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
		answer, err = do()

		return err
	}

	if inject == nil {
		err = next()
	} else {
		err = inject(ctx, operation, next)
	}

	if err != nil {
		var none T

		return none, err
	}

	return answer, nil
}

// throughOnly is [through] for a call without a result.
func throughOnly(ctx context.Context, m *Memory, operation Operation, do func() error) error {
	_, err := through(ctx, m, operation, func() (struct{}, error) { return struct{}{}, do() })

	return err
}

const (
	verbGet    = "get"
	verbList   = "list"
	verbPatch  = "patch"
	verbCreate = "create"
)

func secretNamed(namespace, name string) cluster.Reference {
	return cluster.Reference{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: name}
}

// Object implements [cluster.ObjectAccess].
func (m *Memory) Object(ctx context.Context, of cluster.Reference) (map[string]any, error) {
	return through(ctx, m, Operation{Verb: verbGet, Of: of, By: byClient}, func() (map[string]any, error) { return m.client.Object(ctx, of) })
}

// Objects implements [cluster.Objects].
func (m *Memory) Objects(ctx context.Context, query cluster.ObjectQuery) ([]map[string]any, error) {
	of := cluster.Reference{APIVersion: query.APIVersion, Kind: query.Kind, Namespace: query.Namespace, Name: query.Name}

	return through(ctx, m, Operation{Verb: verbList, Of: of, By: byClient}, func() ([]map[string]any, error) { return m.client.Objects(ctx, query) })
}

// PatchObject implements [cluster.ObjectAccess].
func (m *Memory) PatchObject(ctx context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	return through(ctx, m, Operation{Verb: verbPatch, Of: of, Part: part, By: byClient}, func() (map[string]any, error) {
		return m.client.PatchObject(ctx, of, part, patch)
	})
}

// HasPart implements [cluster.ObjectAccess].
func (m *Memory) HasPart(ctx context.Context, of cluster.Reference, part string) (bool, error) {
	return through(ctx, m, Operation{Verb: verbGet, Of: of, Part: part, By: byClient}, func() (bool, error) { return m.client.HasPart(ctx, of, part) })
}

// Secret implements [cluster.SecretAccess].
func (m *Memory) Secret(ctx context.Context, namespace, name string) (cluster.Secret, error) {
	return through(ctx, m, Operation{Verb: verbGet, Of: secretNamed(namespace, name), By: byClient}, func() (cluster.Secret, error) {
		return m.client.Secret(ctx, namespace, name)
	})
}

// Secrets implements [cluster.SecretAccess].
func (m *Memory) Secrets(ctx context.Context, namespace, selector string) ([]cluster.Secret, error) {
	return through(ctx, m, Operation{Verb: verbList, Of: secretNamed(namespace, ""), By: byClient}, func() ([]cluster.Secret, error) {
		return m.client.Secrets(ctx, namespace, selector)
	})
}

// PatchSecret implements [cluster.SecretAccess].
func (m *Memory) PatchSecret(ctx context.Context, read cluster.Secret, data map[string][]byte) error {
	return throughOnly(ctx, m, Operation{Verb: verbPatch, Of: secretNamed(read.Namespace, read.Name), By: byClient}, func() error { return m.client.PatchSecret(ctx, read, data) })
}

// Get implements [Objects].
func (m *Memory) Get(ctx context.Context, of cluster.Reference) (map[string]any, error) {
	return through(ctx, m, Operation{Verb: verbGet, Of: of, By: byPlayer}, func() (map[string]any, error) { return m.player.Get(ctx, of) })
}

// List implements [Objects].
func (m *Memory) List(ctx context.Context, apiVersion, kind, namespace string) ([]map[string]any, error) {
	of := cluster.Reference{APIVersion: apiVersion, Kind: kind, Namespace: namespace}

	return through(ctx, m, Operation{Verb: verbList, Of: of, By: byPlayer}, func() ([]map[string]any, error) {
		return m.player.List(ctx, apiVersion, kind, namespace)
	})
}

// Patch implements [Objects].
func (m *Memory) Patch(ctx context.Context, of cluster.Reference, part string, patch map[string]any) error {
	return throughOnly(ctx, m, Operation{Verb: verbPatch, Of: of, Part: part, By: byPlayer}, func() error { return m.player.Patch(ctx, of, part, patch) })
}

// Create implements [Objects].
func (m *Memory) Create(ctx context.Context, object map[string]any) error {
	return throughOnly(ctx, m, Operation{Verb: verbCreate, Of: referenceOf(object), By: byPlayer}, func() error { return m.player.Create(ctx, object) })
}

// SecretOf implements [Objects].
func (m *Memory) SecretOf(ctx context.Context, namespace, label, value string) (cluster.Secret, error) {
	return through(ctx, m, Operation{Verb: verbList, Of: secretNamed(namespace, ""), By: byPlayer}, func() (cluster.Secret, error) {
		return m.player.SecretOf(ctx, namespace, label, value)
	})
}

// WriteSecret implements [Objects].
func (m *Memory) WriteSecret(ctx context.Context, namespace, name string, data map[string]string) error {
	return throughOnly(ctx, m, Operation{Verb: verbPatch, Of: secretNamed(namespace, name), By: byPlayer}, func() error { return m.player.WriteSecret(ctx, namespace, name, data) })
}

// CreateSecret implements [Objects].
func (m *Memory) CreateSecret(ctx context.Context, secret cluster.Secret, labels map[string]string) error {
	return throughOnly(ctx, m, Operation{Verb: verbCreate, Of: secretNamed(secret.Namespace, secret.Name), By: byPlayer}, func() error { return m.player.CreateSecret(ctx, secret, labels) })
}

// The fields that are read or written in several places.
const (
	keyMetadata        = "metadata"
	keyAnnotations     = "annotations"
	keyResourceVersion = "resourceVersion"
	keyName            = "name"
	keySpec            = "spec"
	keyState           = "state"
	keyVersion         = "version"
	keyKubeVersion     = "kubeVersion"
	keyMessage         = "message"
)

// prefix begins the keys of the annotation protocol.
const prefix = "upgrade.vitistack.io/"

// section returns an object within an object; nil if there is none.
func section(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}

	return object
}

// text returns a string within an object; empty if there is none.
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

// with returns an object whose fields override or complete those of another one.
func with(object, fields map[string]any) map[string]any {
	made := maps.Clone(fields)
	for field, value := range object {
		if _, another := made[field]; !another {
			made[field] = value
		}
	}

	return made
}

// plain returns a version without "v".
func plain(version string) string { return strings.TrimPrefix(version, "v") }

// partStatus is the part of an object that is changed by itself.
const partStatus = "status"

// operatorKinds returns the kinds of both operators.
func operatorKinds() []apiserver.Kind {
	return []apiserver.Kind{
		{
			APIVersion: VitistackAPIVersion, Kind: VitistackKind, Status: true,
			Fields: []string{"phase", "message", "conditions"}, Check: checkConditions,
		},
		{APIVersion: DeclarativeAPIVersion, Kind: ControlPlaneKind, Status: true, Check: checkDeclarative},
		{APIVersion: DeclarativeAPIVersion, Kind: WorkerKind, Status: true, Check: checkDeclarative},
		{APIVersion: DeclarativeAPIVersion, Kind: MachineKind, Status: true, Check: checkDeclarative},
	}
}

// checkConditions requires every condition to be complete.
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

// checkDeclarative requires versions with "v", and that kubeVersion does not decrease.
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
