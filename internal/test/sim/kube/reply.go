// SPDX-License-Identifier: MPL-2.0

package kube

import "context"

// assess finds out whether answers have to be looked at before clients get
// them, which costs a few milliseconds each.
func (s *Server) assess() {
	// The world changes from several sides. Who asks it first must not have the last word.
	s.assessing.Lock()
	defer s.assessing.Unlock()

	atRisk := s.options.World.RepliesAtRisk()

	s.auditor.ledger.follow(atRisk)
	s.atRisk.Store(atRisk)
}

// loseReply tells whether a request of a client has taken effect whose answer
// has to be lost, and cuts the connections then, before any other answer may pass: it may
// be another one than that in hand that tells so. The answer in hand may belong to the
// request: its line in the audit log is waited for.
func (s *Server) loseReply(cut func()) bool {
	if !s.atRisk.Load() {
		return false
	}

	s.losing.Lock()
	defer s.losing.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()

	// Without the log nobody knows what the answer is about, so it passes.
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

// follow begins or ends to remember the nodes that clients touch.
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
