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

// NewRegistry returns a registry client; nothing is contacted. Only two options are used: the user agent and the
// timeout, which defaults to 10 seconds here.
func NewRegistry(options Options) *Registry {
	if options.Timeout == 0 {
		options.Timeout = imageTimeout
	}

	return &Registry{options: options, keychain: newKeychain()}
}

// Image implements [cluster.Registry]. Credentials come from where docker and podman keep them; without an answer
// from there the query is anonymous. At most the manifest is downloaded, and only if the registry does not fully
// answer a HEAD.
func (r *Registry) Image(ctx context.Context, reference string) error {
	parsed, err := name.ParseReference(reference)
	if err != nil || hides(reference) {
		// The library's error could repeat a password.
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

// look sends a HEAD, and a GET if the answer is unclear: a registry may not support HEAD, may leave out headers,
// and cannot say what it has not found in an answer without a body.
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

// meaning puts the reason why an image was not found into words. Outer is the caller's context.
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
		// It repeats the address, to which a redirect may have added a signature.
		err = request.Err
	}

	return fmt.Errorf("%w: %s", cluster.ErrUnreachable, clip(withoutSecrets(err.Error())))
}

// answer returns the error for a registry's answer other than success. The code in it says more than the status,
// but the HTML page of a server that is no registry has none.
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

// asksForManifest reports whether the request is the one for the manifest, as opposed to those before it, which
// negotiate access.
func asksForManifest(request *http.Request) bool {
	return request != nil && strings.Contains(request.URL.Path, "/manifests/")
}

var (
	userInURL  = regexp.MustCompile(`://[^/@\s"]*@`)
	queryInURL = regexp.MustCompile(`\?[^\s"]*`)
)

// withoutSecrets returns the text with those parts of addresses removed that may contain credentials.
func withoutSecrets(text string) string {
	return queryInURL.ReplaceAllString(userInURL.ReplaceAllString(text, "://"), "")
}
