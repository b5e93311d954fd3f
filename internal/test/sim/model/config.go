// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// MachineConfig is a machine's configuration as it was applied last: YAML with
// comments, and with component images only where the cluster pins them. Its
// keys and tokens are made up.
func (w *World) MachineConfig(nameOrAddress string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n, err := w.find(nameOrAddress)
	if err != nil {
		return nil, err
	}

	return slices.Clone(n.config), nil
}

// writeConfig gives a new machine the configuration it was installed with.
func (w *World) writeConfig(n *node, kubernetes string) error {
	source := machineConfig
	if w.options.Documents && AtLeast(n.running().talos, 1, 14) {
		source = machineDocuments
	}

	parsed, err := template.New("machine configuration").Parse(source)
	if err != nil {
		return fmt.Errorf("machine configuration: %w", err)
	}

	endpoint := n.address
	if len(w.nodes) > 0 {
		endpoint = w.nodes[0].address
	}

	var text strings.Builder

	err = parsed.Execute(&text, map[string]any{
		"Type": n.role, "ControlPlane": n.role == ControlPlane, "Name": n.name, "Install": n.running().image,
		"Images": w.options.imagesFor(kubernetes), "ProxyDisabled": w.options.ProxyDisabled,
		"Disabled": w.options.switchedOff(), "GrubUseUKICmdline": w.options.GrubUseUKICmdline,
		"ClusterName": w.options.ClusterName, "ClusterID": w.clusterID, "Endpoint": endpoint, "APIServer": hostPort(endpoint, "6443"),
		"Secret": drawToken(w.options.Seed, "secret"),
	})
	if err != nil {
		return fmt.Errorf("machine configuration: %w", err)
	}

	config, err := readConfiguration([]byte(text.String()))
	if err != nil {
		return fmt.Errorf("machine configuration: %w", err)
	}

	n.config, n.configured, n.configVersion = []byte(text.String()), config, 1

	return nil
}

// imagesFor are the images that the configurations name: those that the options
// give, and the others with the version, unless nothing is pinned.
func (o Options) imagesFor(kubernetes string) map[string]string {
	images := map[string]string{}

	for _, component := range componentNames() {
		switch {
		case o.ConfiguredImages[component] != "":
			images[component] = o.ConfiguredImages[component]
		case o.Unpinned || component == ProxyName && o.ProxyDisabled:
		case o.ComponentImages[component] != "":
			images[component] = o.ComponentImages[component] + ":v" + kubernetes
		default:
			images[component] = defaultImage(component, kubernetes)
		}
	}

	if image := o.ConfiguredImages[CoreDNSName]; image != "" {
		images[CoreDNSName] = image
	}

	return images
}

// switchedOff are the components that the configurations switch off.
func (o Options) switchedOff() map[string]bool {
	off := map[string]bool{}
	for _, component := range o.DisabledComponents {
		off[component] = true
	}

	return off
}

// componentNames lists the components with a version of Kubernetes, in the
// order in which the history names them.
func componentNames() []string {
	return []string{KubeletName, APIServerName, ControllerManagerName, SchedulerName, ProxyName}
}

// staticNames lists the components that are static pods of a control plane.
func staticNames() []string { return []string{APIServerName, ControllerManagerName, SchedulerName} }

// configuredNames lists the components about which a machine's configuration
// decides.
func (n *node) configuredNames() []string {
	if n.role == ControlPlane {
		return componentNames()
	}

	return []string{KubeletName}
}
