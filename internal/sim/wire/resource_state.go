// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// mirror keeps resources in a state equal to a wanted set; versions count the
// changes.
type mirror struct {
	core state.CoreState
	kept map[string]resource.Resource
}

func newMirror() *mirror {
	return &mirror{core: namespaced.NewState(inmem.Build), kept: map[string]resource.Resource{}}
}

func (m *mirror) apply(ctx context.Context, wanted []resource.Resource) error {
	present := map[string]bool{}

	for _, want := range wanted {
		key := resource.String(want)
		present[key] = true

		if err := m.put(ctx, key, want); err != nil {
			return err
		}
	}

	for key, old := range m.kept {
		if present[key] {
			continue
		}

		if err := m.core.Destroy(ctx, old.Metadata()); err != nil {
			return err
		}

		delete(m.kept, key)
	}

	return nil
}

func (m *mirror) put(ctx context.Context, key string, want resource.Resource) error {
	old := m.kept[key]

	switch {
	case old == nil:
		if err := m.core.Create(ctx, want); err != nil {
			return err
		}
	case reflect.DeepEqual(old.Spec(), want.Spec()):
		return nil
	default:
		want.Metadata().SetVersion(old.Metadata().Version())

		if err := m.core.Update(ctx, want); err != nil {
			return err
		}
	}

	m.kept[key] = want

	return nil
}

// sharedResources are those that are the same on every machine: definitions,
// and the member list. With many machines, one copy each would be large.
type sharedResources struct {
	world       *model.World
	definitions state.CoreState

	mu      sync.Mutex
	members *mirror
}

func newSharedResources(world *model.World) (*sharedResources, error) {
	shared := &sharedResources{
		world: world, members: newMirror(), definitions: namespaced.NewState(inmem.Build),
	}

	ctx := context.Background()
	definitions := state.WrapCore(shared.definitions)

	if err := registry.NewNamespaceRegistry(definitions).RegisterDefault(ctx); err != nil {
		return nil, err
	}

	types := registry.NewResourceRegistry(definitions)
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, err
	}

	for _, sample := range samples() {
		if err := types.Register(ctx, sample); err != nil {
			return nil, err
		}
	}

	if err := shared.refresh(ctx); err != nil {
		return nil, err
	}

	return shared, nil
}

// refresh brings the member list up to date.
func (s *sharedResources) refresh(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.members.apply(ctx, memberResources(s.world.Members()))
}

// nodeResources is the COSI state of one machine. It begins anew, with
// versions from 1, at each boot.
type nodeResources struct {
	world  *model.World
	node   string
	shared *sharedResources
	stale  atomic.Bool

	mu     sync.Mutex
	bootID string
	own    *mirror
}

func newNodeResources(world *model.World, node string, shared *sharedResources) *nodeResources {
	return &nodeResources{world: world, node: node, shared: shared, own: newMirror()}
}

// refresh brings the machine's resources up to date.
func (r *nodeResources) refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.stale.Store(false)

	view, err := r.world.Node(r.node)
	if err != nil || !view.Up {
		return err
	}

	if view.BootID != r.bootID {
		r.bootID, r.own = view.BootID, newMirror()
	}

	config, err := r.world.MachineConfig(r.node)
	if err != nil {
		return err
	}

	return r.own.apply(ctx, ownResources(r.world, view, config))
}

// holder is the state that has resources of a type, brought up to date.
func (r *nodeResources) holder(ctx context.Context, of resource.Type) (state.CoreState, error) {
	switch of {
	case meta.ResourceDefinitionType, meta.NamespaceType:
		return r.shared.definitions, nil
	case cluster.MemberType:
		return r.shared.members.core, r.shared.refresh(ctx)
	}

	if r.stale.Load() {
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return r.own.core, nil
}

// Get implements state.CoreState.
func (r *nodeResources) Get(ctx context.Context, at resource.Pointer, options ...state.GetOption) (resource.Resource, error) {
	core, err := r.holder(ctx, at.Type())
	if err != nil {
		return nil, err
	}

	return core.Get(ctx, at, options...)
}

// List implements state.CoreState.
func (r *nodeResources) List(ctx context.Context, kind resource.Kind, options ...state.ListOption) (resource.List, error) {
	core, err := r.holder(ctx, kind.Type())
	if err != nil {
		return resource.List{}, err
	}

	return core.List(ctx, kind, options...)
}

// Watch implements state.CoreState.
func (r *nodeResources) Watch(ctx context.Context, at resource.Pointer, events chan<- state.Event, options ...state.WatchOption) error {
	core, err := r.holder(ctx, at.Type())
	if err != nil {
		return err
	}

	return core.Watch(ctx, at, events, options...)
}

// WatchKind implements state.CoreState.
func (r *nodeResources) WatchKind(
	ctx context.Context, kind resource.Kind, events chan<- state.Event, options ...state.WatchKindOption,
) error {
	core, err := r.holder(ctx, kind.Type())
	if err != nil {
		return err
	}

	return core.WatchKind(ctx, kind, events, options...)
}

// WatchKindAggregated implements state.CoreState.
func (r *nodeResources) WatchKindAggregated(
	ctx context.Context, kind resource.Kind, events chan<- []state.Event, options ...state.WatchKindOption,
) error {
	core, err := r.holder(ctx, kind.Type())
	if err != nil {
		return err
	}

	return core.WatchKindAggregated(ctx, kind, events, options...)
}

// Create implements state.CoreState; nobody may.
func (r *nodeResources) Create(context.Context, resource.Resource, ...state.CreateOption) error {
	return errReadOnly
}

// Update implements state.CoreState; nobody may.
func (r *nodeResources) Update(context.Context, resource.Resource, ...state.UpdateOption) error {
	return errReadOnly
}

// Destroy implements state.CoreState; nobody may.
func (r *nodeResources) Destroy(context.Context, resource.Pointer, ...state.DestroyOption) error {
	return errReadOnly
}
