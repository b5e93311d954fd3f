// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// errFactoryURL says what a base of an Image Factory has to look like.
var errFactoryURL = errors.New("want an absolute http or https URL without credentials, query and fragment, such as " + DefaultFactoryURL)

// factory is the version list of an Image Factory.
type factory struct {
	list    string
	options Options
}

// CheckFactoryURL is nil when the text can be the base of an Image Factory.
// Errors wrap [ErrLocation].
func CheckFactoryURL(text string) error {
	_, err := factoryURL(text)

	return err
}

func factoryURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		// The text of the error repeats what may be a password.
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
	bounded, cancel := context.WithTimeout(ctx, f.options.timeout())
	defer cancel()

	wire := newMeter()
	defer wire.close()

	req, err := http.NewRequestWithContext(bounded, http.MethodGet, f.list, http.NoBody)
	if err != nil {
		return List{}, fmt.Errorf("%s: %w: %w", f.list, ErrLocation, err)
	}

	req.Header.Set("Accept", "application/json")

	if f.options.UserAgent != "" {
		req.Header.Set("User-Agent", f.options.UserAgent)
	}

	resp, err := (&http.Client{Transport: wire}).Do(req)
	if err != nil {
		return List{}, failed(ctx, f.list, f.options.timeout(), err)
	}

	defer func() { _ = resp.Body.Close() }()

	if resp.StatusCode != http.StatusOK {
		return List{}, refused(f.list, resp.StatusCode, "")
	}

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return List{}, failed(ctx, f.list, f.options.timeout(), err)
	}

	var tags []string
	if err := json.Unmarshal(body, &tags); err != nil {
		return List{}, fmt.Errorf("%s: %w: want a JSON array of version tags, got %s that begins with %q",
			f.list, ErrAnswer, kind(resp.Header.Get("Content-Type")), clip(string(body[:min(len(body), 40)])))
	}

	return newOffer(f.list, version.Talos, tags, f.options)
}

// kind names a content type.
func kind(contentType string) string {
	if contentType == "" {
		return "something"
	}

	return clip(contentType)
}
