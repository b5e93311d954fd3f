// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// client talks to the API server directly, over its own connections.
type client struct {
	kubernetes.Interface
	// objects is the client for objects of any kind.
	objects dynamic.Interface

	transport *http.Transport
	http      *http.Client
	host      string
}

func newClient(config *rest.Config) (*client, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection of %s: %w", config.UserAgent, err)
	}

	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16}

	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection of %s: %w", config.UserAgent, err)
	}

	c := &client{transport: transport, http: &http.Client{Transport: wrapped}, host: config.Host}

	// With JSON, encoding would be half the work of the API server and of this process.
	typed := rest.CopyConfig(config)
	typed.AcceptContentTypes, typed.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeProtobuf

	c.Interface, err = kubernetes.NewForConfigAndClient(typed, c.http)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of %s: %w", config.UserAgent, err)
	}

	c.objects, err = dynamic.NewForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of %s: %w", config.UserAgent, err)
	}

	return c, nil
}

func (c *client) close() {
	if c != nil {
		c.transport.CloseIdleConnections()
	}
}

// raw reads what is at the path; found is false if there is nothing.
func (c *client) raw(ctx context.Context, path string) (object []byte, found bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, http.NoBody)
	if err != nil {
		return nil, false, err
	}

	request.Header.Set("Accept", "application/json")

	response, err := c.http.Do(request)
	if err != nil {
		return nil, false, err
	}

	object, err = io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, false, err
	}

	switch response.StatusCode {
	case http.StatusOK:
		return object, true, nil
	case http.StatusNotFound:
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("reading %s: %s", path, response.Status)
	}
}
