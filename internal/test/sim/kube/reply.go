// SPDX-License-Identifier: MPL-2.0

package kube

import "context"

// assess determines whether answers have to be checked before clients get them, which costs a few milliseconds
// each.
func (s *Server) assess() {
	// The world changes from several sides. A call that asked it earlier must not store its result later.
	s.assessing.Lock()
	defer s.assessing.Unlock()

	atRisk := s.options.World.RepliesAtRisk()

	s.auditor.ledger.follow(atRisk)
	s.atRisk.Store(atRisk)
}

// loseReply reports whether a client's request has taken effect whose answer has to be lost. If so, it cuts the
// connections before any other answer passes: that answer may belong to another request than the one at hand. The
// answer at hand may belong to the request, so loseReply waits for its line in the audit log.
func (s *Server) loseReply(cut func()) bool {
	if !s.atRisk.Load() {
		return false
	}

	s.losing.Lock()
	defer s.losing.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()

	// Without the log it is unknown what the answer is about, so it passes.
	if s.Sync(ctx) != nil {
		return false
	}

	for _, node := range s.auditor.ledger.touched() {
		if s.options.World.LoseReply(node) {
			cut()
			s.assess()

			return true
		}
	}

	return false
}

// follow starts or stops remembering the nodes that clients change.
func (l *ledger) follow(on bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	l.following = on

	if !on {
		l.nodes = nil
	}
}

// touch remembers that a client has changed something about a node.
func (l *ledger) touch(event auditEvent, node string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.following && node != "" && event.by() == byClient && event.succeeded() {
		l.nodes = append(l.nodes, node)
	}
}

// touched returns what was remembered since the last call.
func (l *ledger) touched() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	nodes := l.nodes
	l.nodes = nil

	return nodes
}
