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

// These errors say why there are no credentials. The output of a helper is not repeated, as it may contain the
// credentials.
var (
	errHelperFailed  = errors.New("the credential helper of docker failed")
	errHelperMissing = errors.New("the credential helper of docker is not installed")
	errHelperSilent  = errors.New("the credential helper of docker did not answer")
	errUnreadable    = errors.New("the credentials of docker or podman cannot be read")
)

// keychain wraps the library's keychain, which runs docker's credential helpers without a time limit, for callers
// that have one. A caller waits for a helper only as long as its context allows, and for each registry only one
// helper runs at a time. It is safe for concurrent use.
type keychain struct {
	mutex sync.Mutex
	// flights are by registry.
	flights map[string]*flight
}

// flight is one query for credentials. The results may be read once done is closed.
type flight struct {
	target  string
	done    chan struct{}
	found   authn.Authenticator
	problem error
}

func newKeychain() *keychain { return &keychain{flights: map[string]*flight{}} }

// blank returns a new value of a type that cannot be named here.
func blank[T any](*T) *T { return new(T) }

// resolve finds credentials. The error is one of those above, or that of the context; the helper may still be
// running then.
func (k *keychain) resolve(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	for ctx.Err() == nil {
		flight := k.board(target)

		select {
		case <-ctx.Done():
			return nil, cluster.Ended(ctx)
		case <-flight.done:
		}

		// The credentials may be those of another repository in the same registry.
		if flight.target == target.String() {
			return flight.found, flight.problem
		}
	}

	return nil, cluster.Ended(ctx)
}

// board returns the query about the registry that is in flight, or starts one for the target.
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
		// The library's shared keychain has one lock for all registries, which a hanging helper would never
		// release.
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

// withoutOutput returns the reason why there are no credentials, without anything that a helper or a file
// contained.
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

// access provides the credentials for one query of a registry. If the keychain has no answer, the query is
// anonymous, like a pull of a public image.
type access struct {
	keychain *keychain
	// patience is how long the keychain may take.
	patience time.Duration
	// problem is why there are no credentials, if that is known.
	problem error
}

// within returns an access that leaves half of the time to the registry.
func (k *keychain) within(timeout time.Duration) *access {
	return &access{keychain: k, patience: timeout / 2}
}

// Resolve implements [authn.Keychain].
func (a *access) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return a.ResolveContext(context.Background(), target)
}

// ResolveContext implements [authn.ContextKeychain]. The only error is that of the context.
func (a *access) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	// One query may take several requests.
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

// noted returns the error of a failed query, with the reason why no credentials were used.
func (a *access) noted(err error) error {
	if err == nil || a.problem == nil {
		return err
	}

	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %s; no credentials were used: %w", ErrUnreachable, err.Error(), a.problem)
	}

	if errors.Is(err, cluster.ErrNotFound) {
		// A registry may report private images as not found to clients without credentials.
		return fmt.Errorf("%w: %s; no credentials were used: %w", cluster.ErrUnreachable, err.Error(), a.problem)
	}

	return fmt.Errorf("%w; no credentials were used: %w", err, a.problem)
}
