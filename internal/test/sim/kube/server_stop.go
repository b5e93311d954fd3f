// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"time"
)

// stopTimeout bounds the end of everything.
const stopTimeout = 15 * time.Second

// watch reports a child that ends while nobody stops it.
func (s *Server) watch(child *process) {
	select {
	case <-s.stopping:
	case <-child.done:
		select {
		case <-s.stopping:
		default:
			s.fail(child.failure())
		}
	}
}

func (s *Server) fail(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	if s.failed == nil {
		s.failed = err
		close(s.broken)
	}
}

func (s *Server) failure() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.failed
}

// healthy tells that everything was started and nothing has died since.
func (s *Server) healthy() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.started && s.failed == nil
}

// Wait returns when the server has been stopped, or with an error as soon as
// one of its processes has died.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-s.broken:
	case <-s.done:
	case <-ctx.Done():
		return ctx.Err()
	}

	return s.failure()
}

// Stop ends everything that Start began and waits for it. It returns what
// broke while the server ran, too. Calling it again waits for the first call.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		defer close(s.done)

		close(s.stopping)

		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()

		if err := s.stopAll(ctx); err != nil {
			s.fail(err)
		}
	})

	<-s.done

	return s.failure()
}

func (s *Server) stopAll(ctx context.Context) error {
	if s.unhook != nil {
		s.unhook()
	}

	if s.front != nil {
		s.front.stop()
	}

	if s.play != nil {
		s.play.stop()
	}

	var failed error

	if s.healthy() {
		failed = s.Sync(ctx)
	}

	s.simulator.close()
	s.machine.close()

	if s.plane != nil {
		failed = errors.Join(failed, s.plane.stop())
	}

	if s.auditor != nil {
		failed = errors.Join(failed, s.auditor.close())
	}

	s.wait.Wait()

	return failed
}
