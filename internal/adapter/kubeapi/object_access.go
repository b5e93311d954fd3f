// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Object reads one object by its path, which credentials may be allowed that
// cannot list. It leaves out what [Client.Objects] leaves out, and refuses what
// that refuses.
func (c *Client) Object(ctx context.Context, of cluster.Reference) (map[string]any, error) {
	what := "read " + of.String()

	found, err := c.locate(ctx, what, of)
	if err != nil {
		return nil, err
	}

	object, err := c.get(ctx, what, found, of)
	if !unserved(err) {
		return object, missingObject(err)
	}

	// The kind may have left the cluster, or moved to another resource.
	if found, err = c.relocate(ctx, what, of); err != nil {
		return nil, err
	}

	object, err = c.get(ctx, what, found, of)

	return object, missingObject(err)
}

func (c *Client) get(ctx context.Context, what string, found servedKind, of cluster.Reference) (map[string]any, error) {
	body, err := readRaw(ctx, what, found.object(c.core.Get(), of), mostOfQuery)
	if errors.Is(err, errTooLarge) {
		return nil, refuse(what, fmt.Sprintf("it is more than %d MiB", mostOfQuery>>20), err)
	}

	if err != nil {
		return nil, err
	}

	return decodedObject(what, body)
}

// PatchObject sends the patch once. Of a part, fields that the kind does not have
// are refused in the words of the API server, which otherwise drops them without
// a word. It refuses Secrets.
func (c *Client) PatchObject(ctx context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	what := "change " + of.String()
	if part != "" {
		what = "change the " + part + " of " + of.String()
	}

	body, err := json.Marshal(patch)
	if err != nil {
		return nil, refuse(what, err.Error(), err)
	}

	found, err := c.locatePart(ctx, what, of, part)
	if err != nil {
		return nil, err
	}

	request := found.object(c.core.Patch(types.MergePatchType), of).
		SetHeader("Accept", "application/json").Body(body).MaxRetries(0)

	if part != "" {
		request = request.SubResource(part).Param("fieldValidation", metav1.FieldValidationStrict)
	}

	var answer []byte

	err = do(ctx, operation{what: what, mutates: true}, func(ctx context.Context) (err error) {
		result := request.Do(ctx)
		// What was wrong is in the answer, which is looked at here alone.
		if err := result.Error(); err != nil {
			return err
		}

		answer, err = result.Raw()

		return err
	})
	if err != nil {
		return nil, c.missing(ctx, what, of, part, err)
	}

	return decodedObject(what, answer)
}

// missing tells what is not there where a change failed because of that: the kind,
// the part or the object. The change is not repeated.
func (c *Client) missing(ctx context.Context, what string, of cluster.Reference, part string, err error) error {
	// Of a part, and of an object without one, the API server says the same.
	if !unserved(err) && (part == "" || !errors.Is(err, cluster.ErrNotFound)) {
		return missingObject(err)
	}

	c.forgetKind(of)

	if _, lookup := c.locatePart(ctx, what, of, part); errors.Is(lookup, cluster.ErrNotFound) {
		return lookup
	}

	return missingObject(err)
}

// HasPart implements [cluster.ObjectAccess].
func (c *Client) HasPart(ctx context.Context, of cluster.Reference, part string) (bool, error) {
	found, err := c.locate(ctx, "look at "+of.String(), of)
	if err != nil {
		return false, err
	}

	return found.parts[part], nil
}

// locatePart is locate, and makes sure that the kind has the part.
func (c *Client) locatePart(ctx context.Context, what string, of cluster.Reference, part string) (servedKind, error) {
	found, err := c.locate(ctx, what, of)
	if err != nil || part == "" || found.parts[part] {
		return found, err
	}

	// It may have got it since.
	found, err = c.relocate(ctx, what, of)
	if err != nil || found.parts[part] {
		return found, err
	}

	return servedKind{}, &callError{
		what: what, meanings: []error{cluster.ErrNotFound}, cause: cluster.ErrNotFound,
		detail: fmt.Sprintf("objects of the kind %s of %s have no %s that is changed by itself", of.Kind, of.APIVersion, part),
	}
}

// locate finds out under which path an object is. It refuses what is no name, and
// Secrets.
func (c *Client) locate(ctx context.Context, what string, of cluster.Reference) (servedKind, error) {
	root, err := rootOf(of.APIVersion)
	if err != nil {
		return servedKind{}, refuse(what, err.Error(), err)
	}

	if root == "/api/v1" && of.Kind == "Secret" {
		return servedKind{}, refuse(what, "Secrets are neither read nor changed this way, because what they hold could show in messages", cluster.ErrRefused)
	}

	if err := validSegments(what, of.Namespace, of.Name); err != nil {
		return servedKind{}, err
	}

	if of.Name == "" {
		return servedKind{}, refuse(what, "it has no name", cluster.ErrRefused)
	}

	found, remembered := c.kinds.get(root, of.Kind)
	if !remembered {
		found, err = c.discover(ctx, root, cluster.ObjectQuery{APIVersion: of.APIVersion, Kind: of.Kind})
		if err != nil {
			return servedKind{}, err
		}
	}

	switch {
	case found.namespaced && of.Namespace == "":
		return servedKind{}, refuse(what, fmt.Sprintf("objects of the kind %s are in a namespace; name it", of.Kind), cluster.ErrRefused)
	case !found.namespaced && of.Namespace != "":
		return servedKind{}, refuse(what, fmt.Sprintf("objects of the kind %s are in no namespace; leave the namespace out", of.Kind), cluster.ErrRefused)
	}

	return found, nil
}

// relocate is locate without what is remembered.
func (c *Client) relocate(ctx context.Context, what string, of cluster.Reference) (servedKind, error) {
	c.forgetKind(of)

	return c.locate(ctx, what, of)
}

func (c *Client) forgetKind(of cluster.Reference) {
	if root, err := rootOf(of.APIVersion); err == nil {
		c.kinds.forget(root, of.Kind)
	}
}

// object completes a request for one object of the kind.
func (k servedKind) object(request *rest.Request, of cluster.Reference) *rest.Request {
	return request.AbsPath(k.root).NamespaceIfScoped(of.Namespace, k.namespaced).Resource(k.name).Name(of.Name)
}

// validSegments refuses what would lead to another path.
func validSegments(what string, segments ...string) error {
	for _, segment := range segments {
		if faults := rest.IsValidPathSegmentName(segment); len(faults) > 0 {
			return refuse(what, fmt.Sprintf("%q is no name: it %s", segment, strings.Join(faults, ", ")), cluster.ErrRefused)
		}
	}

	return nil
}

// unserved tells that the API server has no such path, and not only no such
// object.
func unserved(err error) bool {
	return errors.Is(err, cluster.ErrNotFound) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// missingObject tells an object that does not exist from a kind that does not.
func missingObject(err error) error {
	var failure *callError
	if errors.Is(err, cluster.ErrNotFound) && !unserved(err) && errors.As(err, &failure) {
		failure.detail = "there is no such object"
	}

	return err
}

func decodedObject(what string, body []byte) (map[string]any, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("unable to %s: %w", what, err)
	}

	withoutWriters(object)

	return object, nil
}
