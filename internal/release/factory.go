// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// errFactoryURL says what the base URL of an Image Factory must look like.
var errFactoryURL = errors.New("want an absolute http or https URL without credentials, query and fragment, such as " + DefaultFactoryURL)

// factory is the version list of an Image Factory.
type factory struct {
	list    string
	options Options
}

// CheckFactoryURL returns nil if the text can be the base URL of an Image Factory. Errors wrap [ErrLocation].
func CheckFactoryURL(text string) error {
	_, err := factoryURL(text)

	return err
}

func factoryURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		// The text of the library's error could repeat a password.
		return nil, fmt.Errorf("the URL of the Image Factory is %w: %w", ErrLocation, errFactoryURL)
	}

	switch {
	case parsed.User != nil, parsed.Scheme != "http" && parsed.Scheme != "https", parsed.Hostname() == "", parsed.RawQuery != "", parsed.ForceQuery, parsed.Fragment != "":
		return nil, fmt.Errorf("%s is %w: %w", quoted(text), ErrLocation, errFactoryURL)
	}

	return parsed, nil
}

func newFactory(options Options) (Source, error) {
	base := options.FactoryURL
	if base == "" {
		base = DefaultFactoryURL
	}

	parsed, err := factoryURL(base)
	if err != nil {
		return nil, err
	}

	return factory{list: parsed.JoinPath("versions").String(), options: options}, nil
}

// Versions implements [Source].
func (f factory) Versions(ctx context.Context) (List, error) {
	body, contentType, err := get(ctx, f.list, "application/json", f.options)
	if err != nil {
		return List{}, err
	}

	var tags []string
	if err := json.Unmarshal(body, &tags); err != nil {
		return List{}, fmt.Errorf("%s: %w: want a JSON array of version tags, got %s that begins with %q",
			f.list, ErrAnswer, kind(contentType), clip(string(body[:min(len(body), 40)])))
	}

	return newOffer(f.list, version.Talos, tags, f.options)
}

// kind returns the content type as a message names it.
func kind(contentType string) string {
	if contentType == "" {
		return "something"
	}

	return clip(contentType)
}
