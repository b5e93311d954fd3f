// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"errors"
	"strings"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// presence tells removed workers from those that are away. Nobody can take a
// machine out of discovery, which forgets it half an hour after its last word.
type presence struct {
	mu sync.Mutex
	// moving are the nodes whose upgrades have begun and not ended.
	moving map[string]bool
	// silent is, by address, why a worker without a Node object did not answer.
	// Only looks at the whole cluster ask it again: one that is switched off holds
	// up whoever asks until the call times out.
	silent map[string]error
}

func newPresence() *presence {
	return &presence{moving: map[string]bool{}, silent: map[string]error{}}
}

// move notes that the upgrade of a node begins or has ended.
func (p *presence) move(node string, moving bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !moving {
		delete(p.moving, node)

		return
	}

	p.moving[node] = true
}

// doubts tells whether a node has to be asked whether it is there, be the look
// about it or not. What is known to be silent is not asked again.
func (p *presence) doubts(node cluster.Node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return node.Kube == nil && node.Role == cluster.Worker && p.silent[node.Address] == nil
}

// judge marks the workers as gone that discovery lists, and nothing else speaks
// for: they have no Node object, which the Kubernetes API must have said, do not
// answer, and no run of ours is in the middle of anything with them.
func (p *presence) judge(nodes []cluster.Node, journal cluster.Journal) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for index := range nodes {
		node := &nodes[index]
		if node.Kube != nil || node.Role != cluster.Worker {
			continue
		}

		if node.Machine == nil && node.Unreachable == nil {
			node.Unreachable = p.silent[node.Address]
		}

		if !errors.Is(node.Unreachable, cluster.ErrUnreachable) {
			delete(p.silent, node.Address)

			continue
		}

		p.silent[node.Address] = node.Unreachable
		node.Gone = !p.moving[node.Name] && !unfinishedNamed(journal, node.Name)
	}
}

// unfinishedNamed tells whether the journal has an open entry for a machine that
// says nothing of itself. Discovery may spell its name with a domain, and the
// kubelet without, or the other way round.
func unfinishedNamed(journal cluster.Journal, name string) bool {
	short, _, _ := strings.Cut(name, ".")

	for _, entry := range journal.Entries {
		if known, _, _ := strings.Cut(entry.Node, "."); known == short && entry.Open() {
			return true
		}
	}

	return false
}
