// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// reopenPause is how long the front waits before it tries again to take back a
// port that somebody else holds.
const reopenPause = 100 * time.Millisecond

// front is how clients reach the API server: one gate per control plane and
// one that belongs to whichever control plane is up, as a virtual address does.
type front struct {
	world  World
	target string
	lose   func(cut func()) bool

	mutex   sync.Mutex
	planes  map[string]*gate
	shared  *gate
	retry   *time.Timer
	stopped bool
}

func newFront(world World, target string, lose func(cut func()) bool) (*front, error) {
	shared, err := newGate(target, "", lose)
	if err != nil {
		return nil, err
	}

	f := &front{world: world, target: target, lose: lose, planes: map[string]*gate{}, shared: shared}

	return f, f.update()
}

// sent is how many bytes clients were answered through the gates that there are.
func (f *front) sent() int64 {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	sum := f.shared.sent.Load()
	for _, plane := range f.planes {
		sum += plane.sent.Load()
	}

	return sum
}

// update opens and closes the gates to match the world. It does not block, so
// that a machine which goes down takes its connections along at once.
func (f *front) update() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	if f.stopped {
		return nil
	}

	var (
		failed  error
		up      []string
		quorum  = f.world.EtcdQuorum()
		removed = maps.Clone(f.planes)
	)

	for _, machine := range f.world.Machines() {
		if machine.Role != RoleControlPlane {
			continue
		}

		delete(removed, machine.Name)

		serves := quorum && machine.APIServerUp
		if serves {
			up = append(up, machine.Name)
		}

		failed = errors.Join(failed, f.updatePlane(machine.Name, serves))
	}

	for _, known := range removed {
		known.close()
	}

	failed = errors.Join(failed, f.updateShared(up))
	if failed != nil {
		f.later()
	}

	return failed
}

func (f *front) updatePlane(name string, serves bool) error {
	known := f.planes[name]

	if known == nil {
		created, err := newGate(f.target, name, f.lose)
		if err != nil {
			return err
		}

		f.planes[name], known = created, created
	}

	if serves {
		return known.open(name)
	}

	known.close()

	return nil
}

// updateShared leaves the shared address where it is while its owner is up.
func (f *front) updateShared(up []string) error {
	if len(up) == 0 {
		f.shared.close()

		return nil
	}

	owner := f.shared.ownedBy()
	if !slices.Contains(up, owner) {
		owner = up[0]
	}

	return f.shared.open(owner)
}

func (g *gate) ownedBy() string {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	return g.owner
}

// later tries again soon; with the lock held.
func (f *front) later() {
	if f.retry != nil {
		f.retry.Stop()
	}

	// The next attempt reports a failure to nobody: the gate stays closed,
	// which its users see, and the attempt after that follows.
	f.retry = time.AfterFunc(reopenPause, func() { _ = f.update() })
}

// port is where the API server of the named control plane is reached; 0 when
// there is none.
func (f *front) port(name string) int {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	if known := f.planes[name]; known != nil {
		return known.port
	}

	return 0
}

// reachable tells whether any client could get through.
func (f *front) reachable() bool {
	f.shared.mutex.Lock()
	defer f.shared.mutex.Unlock()

	return f.shared.listener != nil
}

func (f *front) stop() {
	f.mutex.Lock()

	f.stopped = true

	if f.retry != nil {
		f.retry.Stop()
	}

	gates := []*gate{f.shared}
	for _, known := range f.planes {
		gates = append(gates, known)
	}

	f.mutex.Unlock()

	for _, known := range gates {
		known.stop()
	}
}
