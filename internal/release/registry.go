// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// imageTimeout is how long a registry may take to say whether it has an image.
const imageTimeout = 10 * time.Second

// Registry asks registries for single images. It is safe for concurrent use.
type Registry struct {
	options  Options
	keychain *keychain
}

// NewRegistry is a registry client; nothing is contacted. Of the options, those
// count that are about the client: a timeout, of which the default is 10 seconds
// here, and the user agent.
func NewRegistry(options Options) *Registry {
	if options.Timeout == 0 {
		options.Timeout = imageTimeout
	}

	return &Registry{options: options, keychain: newKeychain()}
}

// Image implements [cluster.Registry]. Credentials come from where docker and
// podman keep them; without an answer from there the registry is asked
// anonymously. It downloads no more than the manifest, and that only where
// the registry does not answer a HEAD in full.
func (r *Registry) Image(ctx context.Context, reference string) error {
	parsed, err := name.ParseReference(reference)
	if err != nil || hides(reference) {
		// The library's error repeats what may be a password.
		return fmt.Errorf("unable to look for an image: %w: %s is no reference to one, such as ghcr.io/siderolabs/installer:v1.13.4",
			cluster.ErrNotFound, clip(quoted(reference)))
	}

	bounded, cancel := context.WithTimeout(ctx, r.options.timeout())
	defer cancel()

	wire := newMeter()
	defer wire.close()

	credentials := r.keychain.within(r.options.timeout())

	err = look(parsed, remote.WithContext(bounded), remote.WithTransport(wire),
		remote.WithAuthFromKeychain(credentials), remote.WithUserAgent(r.options.UserAgent),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 1, Steps: 2}))
	if err != nil {
		return fmt.Errorf("unable to look for image %s: %w", reference, credentials.noted(r.meaning(ctx, err)))
	}

	return nil
}

// look asks with a HEAD, and with a GET where that says too little: a registry
// may not know it, may leave out headers, and cannot say in an answer without a
// body what it has not found.
func look(reference name.Reference, options ...remote.Option) error {
	_, err := remote.Head(reference, options...)
	if err == nil || !unclear(err) {
		return err
	}

	_, err = remote.Get(reference, options...)

	return err
}

func unclear(err error) bool {
	var (
		answered *transport.Error
		request  *url.Error
	)

	if errors.As(err, &answered) {
		return slices.Contains([]int{
			http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented,
		}, answered.StatusCode)
	}

	return !errors.As(err, &request)
}

// meaning puts the reason why an image was not found into words. Outer is the
// caller's context.
func (r *Registry) meaning(outer context.Context, err error) error {
	var (
		answered *transport.Error
		request  *url.Error
	)

	switch {
	case errors.Is(outer.Err(), context.Canceled):
		return cluster.Ended(outer)
	case outer.Err() != nil:
		return fmt.Errorf("%w: %w", cluster.ErrUnreachable, cluster.Ended(outer))
	case errors.As(err, &answered):
		return answer(answered)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer within %s", cluster.ErrUnreachable, r.options.timeout())
	case errors.As(err, &request):
		// It repeats the address, which a redirect may have given a signature.
		err = request.Err
	}

	return fmt.Errorf("%w: %s", cluster.ErrUnreachable, clip(withoutSecrets(err.Error())))
}

// answer is the meaning of a registry's answer other than yes. The code in it
// says more than the status; a page of something that is no registry has none.
func answer(answered *transport.Error) error {
	said := fmt.Sprintf("the registry answered %d %s", answered.StatusCode, http.StatusText(answered.StatusCode))
	says := func(codes ...transport.ErrorCode) bool {
		return slices.ContainsFunc(answered.Errors, func(d transport.Diagnostic) bool { return slices.Contains(codes, d.Code) })
	}

	if len(answered.Errors) > 0 {
		first := answered.Errors[0]
		said += " (" + strings.TrimSuffix(fmt.Sprintf("%s: %s", first.Code, first.Message), ": ") + ")"
	}

	said = clip(withoutSecrets(said))

	switch {
	case says(transport.ManifestUnknownErrorCode, transport.NameUnknownErrorCode):
		return fmt.Errorf("%w: %s", cluster.ErrNotFound, said)
	case answered.StatusCode == http.StatusUnauthorized, answered.StatusCode == http.StatusForbidden,
		says(transport.UnauthorizedErrorCode, transport.DeniedErrorCode):
		return fmt.Errorf("%w: %s", cluster.ErrDenied, said)
	case answered.StatusCode == http.StatusNotFound && asksForManifest(answered.Request):
		return fmt.Errorf("%w: %s", cluster.ErrNotFound, said)
	default:
		return fmt.Errorf("%w: %s", cluster.ErrUnreachable, said)
	}
}

// asksForManifest tells the question for an image from those before it, which
// find out how to ask.
func asksForManifest(request *http.Request) bool {
	return request != nil && strings.Contains(request.URL.Path, "/manifests/")
}

var (
	userInURL  = regexp.MustCompile(`://[^/@\s"]*@`)
	queryInURL = regexp.MustCompile(`\?[^\s"]*`)
)

// withoutSecrets is a text in which no address has a part that may hold
// credentials.
func withoutSecrets(text string) string {
	return queryInURL.ReplaceAllString(userInURL.ReplaceAllString(text, "://"), "")
}
