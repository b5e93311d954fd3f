// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// render returns the objects that the control plane at the address renders: all of them, unless it may be
// incomplete. They are copies, because the libraries write to them.
func (c *Client) render(ctx context.Context, address string, incomplete bool) ([]*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()

	objects, err := rendered(ctx, c.states.State(address), incomplete)
	if err != nil {
		return nil, fmt.Errorf("unable to read the bootstrap manifests of control plane %s: %w", address, err)
	}

	return objects, nil
}

// spare returns the objects that the other control planes render; none if nothing is pruned. If one of them cannot
// be read, that is an error, because it might render what would be pruned.
func (c *Client) spare(ctx context.Context, options cluster.ManifestOptions) ([]*unstructured.Unstructured, error) {
	if !options.ServerSide || !options.Prune {
		return nil, nil
	}

	var spared []*unstructured.Unstructured

	for _, address := range options.Also {
		objects, err := c.render(ctx, address, false)
		if err != nil {
			return nil, fmt.Errorf("nothing is pruned before it is known what every control plane renders: %w", err)
		}

		spared = append(spared, objects...)
	}

	return spared, nil
}

// rendered returns the rendered objects. It reads what a control plane is to render before what it has rendered, so
// that what is added in between does not count as rendered.
func rendered(ctx context.Context, from state.State, incomplete bool) ([]*unstructured.Unstructured, error) {
	expected, err := extras(ctx, from)
	if err != nil {
		return nil, err
	}

	found, err := safe.StateList[*k8s.Manifest](ctx, from,
		resource.NewMetadata(k8s.ControlPlaneNamespaceName, k8s.ManifestType, "", resource.VersionUndefined))
	if err != nil {
		return nil, err
	}

	var objects []*unstructured.Unstructured

	for manifest := range found.All() {
		delete(expected, manifest.Metadata().ID())

		for _, item := range manifest.TypedSpec().Items {
			object, err := typed(item.Object)
			if err != nil {
				return nil, fmt.Errorf("%w: manifest %s: %w", cluster.ErrRefused, withoutSecrets(manifest.Metadata().ID()), err)
			}

			objects = append(objects, object)
		}
	}

	if len(expected) > 0 && !incomplete {
		missing := slices.Sorted(maps.Values(expected))

		return nil, fmt.Errorf("%w: not rendered yet: %s", cluster.ErrIncomplete, strings.Join(missing, ", "))
	}

	if len(objects) == 0 {
		// Applying nothing with Prune would empty the cluster.
		return nil, fmt.Errorf("%w: it has rendered none yet", cluster.ErrUnreachable)
	}

	return objects, nil
}

// extras returns the names of the extra and inline manifests of the machine configuration, by the ID of what they
// are rendered to. Rendered manifests are kept in memory, so a control plane that has just booted renders them
// again, which takes downloads.
func extras(ctx context.Context, from state.State) (map[resource.ID]string, error) {
	config, err := safe.StateGet[*k8s.ExtraManifestsConfig](ctx, from, k8s.NewExtraManifestsConfig().Metadata())

	switch {
	case state.IsNotFoundError(err), errors.Is(err, cluster.ErrNotFound), errors.Is(err, cluster.ErrDenied):
		// Credentials that may read the manifests may read this: a refusal means that the type does not exist.
		return nil, nil
	case err != nil:
		return nil, err
	}

	names := map[resource.ID]string{}

	for _, extra := range config.TypedSpec().ExtraManifests {
		names[extra.Priority+"-"+extra.Name] = withoutSecrets(extra.Name)
	}

	return names, nil
}

// withoutSecrets returns the name or the ID of an extra manifest without what grants access to it: both contain a URL,
// which may have a prefix. If the URL cannot be parsed, all that may be a password is left out.
func withoutSecrets(name string) string {
	scheme, rest, isURL := strings.Cut(name, "://")
	if !isURL {
		name, _, _ = strings.Cut(name, "?")

		return name
	}

	if parsed, err := url.Parse("https://" + rest); err == nil && parsed.Host != "" {
		return scheme + "://" + parsed.Host + parsed.Path
	}

	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	rest, _, _ = strings.Cut(rest, "?")

	return scheme + "://" + rest
}

var errNoObject = errors.New("an object without kind or apiVersion")

// typed returns a copy in which numbers have the types of decoded JSON. Its errors do not quote the object, which
// may be a Secret.
func typed(rendered map[string]any) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}

	text, err := json.Marshal(rendered)
	if err == nil {
		err = object.UnmarshalJSON(text)
	}

	if err != nil || object.GetKind() == "" || object.GetAPIVersion() == "" {
		return nil, errNoObject
	}

	return object, nil
}
