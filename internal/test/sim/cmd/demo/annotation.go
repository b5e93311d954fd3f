// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// annotationPrefix begins all keys of the annotation protocol.
const annotationPrefix = "upgrade.vitistack.io/"

// ours is the label of every object that the provider creates.
const ours = "app.kubernetes.io/managed-by=terraform-provider-talosupgrade"

const kubernetesTimeout = 10 * time.Second

func connect(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the simulator's kubeconfig: %w", err)
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the simulated Kubernetes: %w", err)
	}

	return client, nil
}

// readAnnotations reads what was published, as everybody with a kubeconfig can: from the ConfigMap
// kube-system/talosupgrade.
func readAnnotations(ctx context.Context, kubeconfig string) (map[string]string, error) {
	client, err := connect(kubeconfig)
	if err != nil {
		return nil, err
	}

	bounded, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()

	object, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(bounded, "talosupgrade", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the published annotations: %w", err)
	}

	annotations := maps.Clone(object.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !strings.HasPrefix(key, annotationPrefix) })

	return annotations, nil
}

// leftovers names the provider's objects that are in the cluster.
func leftovers(ctx context.Context, kubeconfig string) ([]string, error) {
	client, err := connect(kubeconfig)
	if err != nil {
		return nil, err
	}

	bounded, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()

	var names []string

	configs, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(bounded, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		return nil, fmt.Errorf("listing what was left in the cluster: %w", err)
	}

	for _, object := range configs.Items {
		names = append(names, "ConfigMap "+object.Name+" was left in the cluster")
	}

	leases, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(bounded, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		return nil, fmt.Errorf("listing what was left in the cluster: %w", err)
	}

	for _, object := range leases.Items {
		names = append(names, "Lease "+object.Name+" was left in the cluster")
	}

	return names, nil
}
