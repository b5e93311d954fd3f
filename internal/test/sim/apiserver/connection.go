// SPDX-License-Identifier: MPL-2.0

package apiserver

// Connections counts the connections of clients that are open.
func (s *Server) Connections() int {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()

	return len(s.network.open)
}
