// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// shortestValue is how many bytes a value of a Secret must have to be searched for in the messages of an API
// server: a value of a few letters occurs in many texts.
const shortestValue = 4

// Secret implements [cluster.SecretAccess].
func (c *Client) Secret(ctx context.Context, namespace, name string) (cluster.Secret, error) {
	what := "read the Secret " + namespace + "/" + name

	if err := validSecret(what, namespace, name); err != nil {
		return cluster.Secret{}, err
	}

	var object corev1.Secret

	err := read(ctx, what, c.core.Get().Namespace(namespace).Resource("secrets").Name(name), &object)
	if err != nil {
		return cluster.Secret{}, missingObject(err)
	}

	return secretFrom(&object), nil
}

// Secrets implements [cluster.SecretAccess].
func (c *Client) Secrets(ctx context.Context, namespace, selector string) ([]cluster.Secret, error) {
	what := "list the Secrets in the namespace " + namespace + " with the labels " + selector

	if err := validSecret(what, namespace, "-"); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	request := func() *rest.Request {
		return c.core.Get().Namespace(namespace).Resource("secrets").Param("labelSelector", selector)
	}

	found, err := listOf(ctx, what, request, func() *corev1.SecretList { return &corev1.SecretList{} },
		func(list *corev1.SecretList) []cluster.Secret {
			secrets := make([]cluster.Secret, 0, len(list.Items))
			for i := range list.Items {
				secrets = append(secrets, secretFrom(&list.Items[i]))
			}

			return secrets
		})

	slices.SortFunc(found, func(a, b cluster.Secret) int { return cmp.Compare(a.Name, b.Name) })

	return found, err
}

// PatchSecret implements [cluster.SecretAccess]. If the Secret was deleted since it was read, the error is a
// conflict as well.
func (c *Client) PatchSecret(ctx context.Context, read cluster.Secret, data map[string][]byte) error {
	what := "change the Secret " + read.Namespace + "/" + read.Name

	if err := validSecret(what, read.Namespace, read.Name); err != nil {
		return err
	}

	if read.ResourceVersion == "" {
		return refuse(what, "it is changed only as it was read, and it was not", cluster.ErrRefused)
	}

	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": read.ResourceVersion},
		"data":     data,
	})
	if err != nil {
		return refuse(what, "the values cannot be encoded", cluster.ErrRefused)
	}

	err = change(ctx, what, c.core.Patch(types.MergePatchType).Namespace(read.Namespace).Resource("secrets").Name(read.Name).Body(body), nil)

	return withoutValues(vanished(read.ResourceVersion, missingObject(err)), read.Data, data)
}

func validSecret(what, namespace, name string) error {
	if namespace == "" {
		return refuse(what, "it has no namespace", cluster.ErrRefused)
	}

	if name == "" {
		return refuse(what, "it has no name", cluster.ErrRefused)
	}

	return validSegments(what, namespace, name)
}

func secretFrom(object *corev1.Secret) cluster.Secret {
	return cluster.Secret{
		Namespace: object.Namespace, Name: object.Name, Data: object.Data, ResourceVersion: object.ResourceVersion,
	}
}

// withoutValues removes from an error what it quotes of a Secret: whatever rejects a change, such as a webhook, may
// repeat the content in its message.
func withoutValues(err error, contents ...map[string][]byte) error {
	var failure *callError
	if !errors.As(err, &failure) {
		return err
	}

	text := failure.detail + " " + failure.cause.Error()

	for _, content := range contents {
		for _, value := range content {
			if len(value) < shortestValue {
				continue
			}

			if strings.Contains(text, string(value)) || strings.Contains(text, base64.StdEncoding.EncodeToString(value)) {
				failure.detail = "the answer is left out here, because it quotes what the Secret holds"
				failure.cause = errQuotes

				return err
			}
		}
	}

	return err
}

// errQuotes replaces an answer that quotes a Secret.
var errQuotes = errors.New("answer left out")
