// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Why there are no credentials. What a helper printed is not repeated: it may
// be the credentials.
var (
	errHelperFailed  = errors.New("the credential helper of docker failed")
	errHelperMissing = errors.New("the credential helper of docker is not installed")
	errHelperSilent  = errors.New("the credential helper of docker did not answer")
	errUnreadable    = errors.New("the credentials of docker or podman cannot be read")
)

// keychain is the library's, which runs helpers of docker without a bound, for
// callers that have one. Nobody waits for a helper that hangs longer than for
// anything else, and of all callers that are after one registry, one at a time
// runs it. It is safe for concurrent use.
type keychain struct {
	mutex sync.Mutex
	// flights are by registry.
	flights map[string]*flight
}

// flight is one question for credentials. The results may be read once done is
// closed.
type flight struct {
	target  string
	done    chan struct{}
	found   authn.Authenticator
	problem error
}

func newKeychain() *keychain { return &keychain{flights: map[string]*flight{}} }

// blank is a new value of a type that has no name here.
func blank[T any](*T) *T { return new(T) }

// resolve finds credentials. The error is one of those above, or that of the
// context; a helper may go on then.
func (k *keychain) resolve(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	for ctx.Err() == nil {
		flight := k.board(target)

		select {
		case <-ctx.Done():
			return nil, cluster.Ended(ctx)
		case <-flight.done:
		}

		// A repository may have credentials of its own.
		if flight.target == target.String() {
			return flight.found, flight.problem
		}
	}

	return nil, cluster.Ended(ctx)
}

// board is the question about the registry that is under way, or a new one
// about the target.
func (k *keychain) board(target authn.Resource) *flight {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	registry := target.RegistryStr()
	if under, ok := k.flights[registry]; ok {
		return under
	}

	started := &flight{target: target.String(), done: make(chan struct{})}
	k.flights[registry] = started

	go func() {
		// The library's own value has one lock for all registries, which a helper
		// that hangs never gives back.
		inner := blank(authn.DefaultKeychain)
		started.found, started.problem = inner.Resolve(target)
		started.problem = withoutOutput(started.problem)

		k.mutex.Lock()
		delete(k.flights, registry)
		k.mutex.Unlock()

		close(started.done)
	}()

	return started
}

// withoutOutput is the reason why there are no credentials without anything
// that a helper or a file said.
func withoutOutput(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "executable file not found"):
		return errHelperMissing
	case strings.HasPrefix(err.Error(), "error getting credentials"):
		return errHelperFailed
	default:
		return errUnreadable
	}
}

// access are the credentials for one look at a registry. Without an answer of
// the keychain it is taken anonymously, as a pull of a public image would do.
type access struct {
	keychain *keychain
	// patience is how long the keychain may take.
	patience time.Duration
	// problem is why there are no credentials, once that is known.
	problem error
}

// within is access that leaves the other half of the time to the registry.
func (k *keychain) within(timeout time.Duration) *access {
	return &access{keychain: k, patience: timeout / 2}
}

// Resolve implements [authn.Keychain].
func (a *access) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return a.ResolveContext(context.Background(), target)
}

// ResolveContext implements [authn.ContextKeychain]. The error is that of the
// context.
func (a *access) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	// One look may be several requests.
	if a.problem != nil {
		return authn.Anonymous, nil
	}

	bounded, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()

	found, err := a.keychain.resolve(bounded, target)

	switch {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return nil, cluster.Ended(ctx)
	case bounded.Err() != nil && errors.Is(err, bounded.Err()):
		a.problem = fmt.Errorf("%w within %s", errHelperSilent, a.patience)
	default:
		a.problem = err
	}

	return authn.Anonymous, nil
}

// noted is the error of a look that failed, with the reason why it was taken
// without credentials.
func (a *access) noted(err error) error {
	if err == nil || a.problem == nil {
		return err
	}

	if errors.Is(err, cluster.ErrNotFound) {
		// What is private does not exist for those who may not see it.
		return fmt.Errorf("%w: %s; no credentials were used: %w", cluster.ErrUnreachable, err.Error(), a.problem)
	}

	return fmt.Errorf("%w; no credentials were used: %w", err, a.problem)
}
