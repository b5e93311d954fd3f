// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"reflect"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
)

// mirror keeps resources in a state equal to a wanted set. Versions count the
// changes, unless the wanted resource comes with a version: then that is the
// one it gets.
type mirror struct {
	core state.CoreState
	kept map[string]kept
}

type kept struct {
	resource.Resource
	version uint64
}

func newMirror() *mirror {
	return &mirror{core: namespaced.NewState(inmem.Build), kept: map[string]kept{}}
}

func (m *mirror) apply(ctx context.Context, wanted []resource.Resource) error {
	present := map[string]bool{}

	for _, want := range wanted {
		key := nameOf(want)
		present[key] = true

		if err := m.put(ctx, key, want); err != nil {
			return err
		}
	}

	for key, old := range m.kept {
		if present[key] {
			continue
		}

		if err := m.remove(ctx, key, old); err != nil {
			return err
		}
	}

	return nil
}

// nameOf tells resources of one state apart, whatever their versions.
func nameOf(entry resource.Resource) string {
	metadata := entry.Metadata()

	return metadata.Namespace() + "/" + metadata.Type() + "/" + metadata.ID()
}

func (m *mirror) put(ctx context.Context, key string, want resource.Resource) error {
	target := want.Metadata().Version().Value()
	old, exists := m.kept[key]

	if exists && target > 0 && target < old.version {
		if err := m.remove(ctx, key, old); err != nil {
			return err
		}

		exists = false
	}

	if !exists {
		if err := m.core.Create(ctx, want); err != nil {
			return err
		}

		old = kept{want, 1}
		m.kept[key] = old
	}

	if target == 0 && !reflect.DeepEqual(old.Spec(), want.Spec()) {
		target = old.version + 1
	}

	for version := old.version; version < target; version++ {
		parsed, err := resource.ParseVersion(strconv.FormatUint(version, 10))
		if err != nil {
			return err
		}

		want.Metadata().SetVersion(parsed)

		if err := m.core.Update(ctx, want); err != nil {
			return err
		}

		m.kept[key] = kept{want, version + 1}
	}

	return nil
}

func (m *mirror) remove(ctx context.Context, key string, old kept) error {
	if err := m.core.Destroy(ctx, old.Metadata()); err != nil {
		return err
	}

	delete(m.kept, key)

	return nil
}
