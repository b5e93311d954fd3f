// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// repository is the list of tags of an OCI repository.
type repository struct {
	product  version.Product
	location string
	name     name.Repository
	options  Options
	keychain *keychain
}

func newRepository(product version.Product, location string, options Options) (Source, error) {
	parsed, err := name.NewRepository(strings.TrimPrefix(location, OCI), name.StrictValidation)
	if err == nil && !hides(location) {
		return repository{product: product, location: location, name: parsed, options: options, keychain: newKeychain()}, nil
	}

	problem := fmt.Errorf("%s is %w of %s: want oci://REGISTRY/REPOSITORY without a tag, such as %s", quoted(location), ErrLocation, product.Name(), example(product))
	if hides(location) {
		// The library's error could repeat a password.
		return nil, fmt.Errorf("%w; credentials are taken from where docker login and podman login keep them", problem)
	}

	return nil, fmt.Errorf("%w: %s", problem, clip(err.Error()))
}

func example(product version.Product) string {
	if product == version.Talos {
		return OCI + "ghcr.io/siderolabs/installer"
	}

	return OCI + "registry.k8s.io/kube-apiserver"
}

// Versions implements [Source]. Credentials come from where docker and podman keep them; without an answer from
// there the query is anonymous.
func (r repository) Versions(ctx context.Context) (List, error) {
	bounded, cancel := context.WithTimeout(ctx, r.options.timeout())
	defer cancel()

	wire := newMeter()
	defer wire.close()

	credentials := r.keychain.within(r.options.timeout())

	tags, err := remote.List(r.name, remote.WithContext(bounded), remote.WithTransport(wire),
		remote.WithAuthFromKeychain(credentials), remote.WithUserAgent(r.options.UserAgent),
		// One retry after a moment: the library's default retries would outlast the timeout of a plan.
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 1, Steps: 2}))
	if err != nil {
		return List{}, credentials.noted(r.failed(ctx, err))
	}

	return newOffer(r.location, r.product, tags, r.options)
}

func (r repository) failed(ctx context.Context, err error) error {
	var answered *transport.Error
	if ctx.Err() != nil || !errors.As(err, &answered) {
		var (
			syntax *json.SyntaxError
			shape  *json.UnmarshalTypeError
		)

		if errors.As(err, &syntax) || errors.As(err, &shape) {
			return fmt.Errorf("%s: %w: this is not how a registry lists tags: %s", r.location, ErrAnswer, clip(err.Error()))
		}

		return failed(ctx, r.location, r.options.timeout(), err)
	}

	// The code in a registry's answer is more precise than its status; an HTML page of a server that is no
	// registry has none.
	said := ""
	if len(answered.Errors) > 0 {
		said = strings.TrimSuffix(fmt.Sprintf("%s: %s", answered.Errors[0].Code, answered.Errors[0].Message), ": ")
	}

	return refused(r.location, answered.StatusCode, said)
}
