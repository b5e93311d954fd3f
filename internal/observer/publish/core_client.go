// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// coreClient is a client of the objects of Kubernetes itself, over the connection
// of another client of the same API server.
func coreClient(config *rest.Config, httpClient *http.Client) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("unable to describe the objects of Kubernetes: %w", err)
	}

	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1

	client, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("unable to connect to the Kubernetes API: %w", err)
	}

	return client, nil
}
