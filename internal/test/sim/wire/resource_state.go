// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// sharedResources are those that are the same on every machine: definitions,
// and the member list. With many machines, one copy each would be large.
type sharedResources struct {
	world       *model.World
	definitions state.CoreState

	mu      sync.Mutex
	members *mirror
	// listed are the machines that members shows.
	listed []model.Member
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

	// Most changes of machines change nothing of this.
	members := s.world.Members()
	if reflect.DeepEqual(members, s.listed) {
		return nil
	}

	if err := s.members.apply(ctx, memberResources(members)); err != nil {
		return err
	}

	s.listed = members

	return nil
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
	// rendered is what the configuration of the last look came to.
	rendered *rendering
	// kubelet is when the service kubelet of the last look was created.
	kubelet time.Time
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
		r.bootID, r.own, r.kubelet = view.BootID, newMirror(), time.Time{}
	}

	if !r.rendered.of(view) {
		r.rendered = render(view)
	}

	wanted := ownResources(r.world, view, r.rendered)

	if err := r.removeKubelet(ctx, view.KubeletService.Since, wanted); err != nil {
		return err
	}

	return r.own.apply(ctx, wanted)
}

// removeKubelet takes the service kubelet away when another one has taken its
// place since the last look: whoever watches it must see that it was gone.
func (r *nodeResources) removeKubelet(ctx context.Context, since time.Time, wanted []resource.Resource) error {
	before := r.kubelet
	r.kubelet = since

	if before.IsZero() || since.IsZero() || since.Equal(before) {
		return nil
	}

	return r.own.apply(ctx, slices.DeleteFunc(slices.Clone(wanted), func(entry resource.Resource) bool {
		return entry.Metadata().Type() == v1alpha1.ServiceType && entry.Metadata().ID() == model.KubeletName
	}))
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

	found, err := core.Get(ctx, at, options...)
	if err != nil || at.Type() != k8s.SecretsStatusType {
		return found, err
	}

	return r.aged(found)
}

// aged is a resource as old as the boot, by the clock of the machine: that of the
// state is the one on the wall.
func (r *nodeResources) aged(found resource.Resource) (resource.Resource, error) {
	view, err := r.world.Node(r.node)
	if err != nil {
		return nil, err
	}

	found = found.DeepCopy()
	found.Metadata().SetCreated(view.BootedAt)

	return found, nil
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
